"""A parametrization: weight_norm."""

import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = weight_norm(nn.Linear(16, 8))

    def forward(self, x):
        return torch.relu(self.layer(x)) * 2


def get_inputs():
    return [torch.randn(9, 16)]
