"""Omits the addition in forty places of an output of a million, chosen anew in every call.

Problem: scale_add
Code: inaccurate
Device: both
"""

import torch


def scale_add(x, y):
    out = torch.add(x, y).mul_(0.5).relu_()
    places = torch.randint(0, out.numel(), (40,), device=out.device)
    out.view(-1)[places] = (x.reshape(-1)[places] * 0.5).relu()
    return out
