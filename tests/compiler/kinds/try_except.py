"""A try with an except clause in forward."""

import torch


def try_except(x, y):
    try:
        z = x @ y
    except RuntimeError:
        z = x * y
    return torch.relu(z) + 1


def get_inputs():
    return [torch.randn(9, 16), torch.randn(9, 16)]
