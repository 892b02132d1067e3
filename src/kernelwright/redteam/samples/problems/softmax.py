"""Softmax over the last dimension."""

import torch


def softmax(x):
    return torch.softmax(x, -1)


def get_inputs():
    return [torch.randn(96, 1531)]
