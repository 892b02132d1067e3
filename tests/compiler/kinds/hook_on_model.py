"""A forward hook on the program itself."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(16, 8)
        self.register_forward_hook(lambda module, args, result: result * 3)

    def forward(self, x):
        return torch.relu(self.layer(x)) + 1


def get_inputs():
    return [torch.randn(9, 16)]
