"""A key-value cache: forward writes one row of a buffer and reads all."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("cache", torch.zeros(8, 16))

    def forward(self, x, position: int):
        self.cache[position] = torch.tanh(x) * 2
        return (self.cache @ x).softmax(0)


def get_inputs():
    return [torch.randn(16), 3]
