"""Float64."""

import torch


def double_precision(x, y):
    return torch.softmax(x * y + 1, -1) * 2


def get_inputs():
    return [torch.randn(9, 16, dtype=torch.float64), torch.randn(16, dtype=torch.float64)]
