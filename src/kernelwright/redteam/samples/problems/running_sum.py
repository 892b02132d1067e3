"""Running sums of rows."""

import torch


def running_sum(x):
    return torch.cumsum(x, -1)


def get_inputs():
    return [torch.randn(60, 1000)]
