"""A callable object that is no nn.Module."""

import torch


class Model:
    def __init__(self, factor):
        self.factor = factor

    def __call__(self, x):
        return torch.relu(x * self.factor) + 1


def get_init_inputs():
    return [3.0]


def get_inputs():
    return [torch.randn(9, 16)]
