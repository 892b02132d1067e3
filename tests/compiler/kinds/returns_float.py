"""No tensor as a result: a Python number."""

import torch


def returns_float(x):
    return (torch.relu(x) * 2).mean().item()


def get_inputs():
    return [torch.randn(9, 16)]
