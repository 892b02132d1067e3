"""A problem that is over in a moment."""

import torch


def small(x, y):
    return torch.relu(x + y)


def get_inputs():
    return [torch.randn(300, 70), torch.randn(300, 70)]
