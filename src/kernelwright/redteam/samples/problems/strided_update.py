"""Changes every second column of a matrix in place and returns nothing."""

import torch


def strided_update(x, y, factor):
    x[:, ::2].mul_(factor).add_(y.relu())


def get_inputs():
    return [torch.randn(50, 120), torch.randn(50, 60), 0.75]
