"""Rows chosen by a boolean mask."""

import torch


def boolean_mask(x, mask):
    return torch.tanh(x[mask]) * 2 + 1


def get_inputs():
    return [torch.randn(9, 16), torch.rand(9) > 0.4]
