"""Queries, keys and values of a linear layer: three views of its result."""

import torch


class Model(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.all = torch.nn.Linear(width, 3 * width)

    def forward(self, x):
        return self.all(x).unflatten(-1, (3, 4, -1)).unbind(-3)


def get_init_inputs():
    return [64]


def get_inputs():
    return [torch.randn(5, 24, 64)]
