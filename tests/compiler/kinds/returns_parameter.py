"""A parameter and a view of a buffer among the results."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(16))
        self.register_buffer("table", torch.randn(4, 16))

    def forward(self, x):
        return self.weight, self.table[1], torch.relu(x * self.weight)


def get_inputs():
    return [torch.randn(9, 16)]
