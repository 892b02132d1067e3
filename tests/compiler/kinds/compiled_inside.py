"""A part of the program that its author compiles with torch.compile."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.compile(nn.Linear(16, 8), backend="eager")

    def forward(self, x):
        return torch.relu(self.layer(x)) + 1


def get_inputs():
    return [torch.randn(9, 16)]
