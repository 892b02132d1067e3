"""Inputs that a generator makes, in a list argument."""

import torch


def generator_inputs(tensors):
    return torch.stack([torch.relu(tensor) * 2 for tensor in tensors]).sum(0)


def _draw():
    for size in (1, 16, 1):
        yield torch.randn(9, size)


def get_inputs():
    return [[tensor.expand(9, 16).contiguous() for tensor in _draw()]]
