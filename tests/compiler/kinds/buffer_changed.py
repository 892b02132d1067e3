"""A moving average in a buffer, changed in place by forward."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("average", torch.zeros(16))

    def forward(self, x):
        self.average.mul_(0.9).add_(x.mean(0) * 0.1)
        return (x - self.average) * 2


def get_inputs():
    return [torch.randn(9, 16)]
