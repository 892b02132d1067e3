"""A buffer that forward replaces by another tensor."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("last", torch.zeros(16))

    def forward(self, x):
        y = torch.tanh(x) + self.last
        self.last = y[-1] * 0.5
        return y


def get_inputs():
    return [torch.randn(9, 16)]
