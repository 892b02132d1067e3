"""The largest value of each row and its index."""

import torch


def top_one(x):
    return torch.max(x, -1)


def get_inputs():
    return [torch.randn(97, 1531)]
