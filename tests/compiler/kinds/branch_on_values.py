"""Control flow that depends on the values."""

import torch


def branch_on_values(x):
    if x.sum() > 0:
        return torch.relu(x) * 2
    return torch.sigmoid(x) + 1


def get_inputs():
    return [torch.randn(9, 16)]
