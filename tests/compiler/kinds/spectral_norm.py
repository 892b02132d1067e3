"""A parametrization with buffers that forward changes in train mode: spectral_norm."""

import torch
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = spectral_norm(nn.Linear(16, 8))

    def forward(self, x):
        return torch.relu(self.layer(x)) * 2


def get_inputs():
    return [torch.randn(9, 16)]
