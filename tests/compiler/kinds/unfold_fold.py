"""Patches of an image by unfold, and back by fold."""

import torch
import torch.nn.functional as F


def unfold_fold(x):
    patches = F.unfold(x, 3, padding=1)
    return F.fold(torch.relu(patches) * 2, (8, 8), 3, padding=1), x.unfold(-1, 4, 2).mean(-1)


def get_inputs():
    return [torch.randn(2, 3, 8, 8)]
