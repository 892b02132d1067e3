"""Tensors without elements."""

import torch


def empty_tensors(x, y):
    return torch.relu(x) * 2 + 1, torch.cat([x.sum(0), y]), x.sum()


def get_inputs():
    return [torch.randn(0, 16), torch.randn(0)]
