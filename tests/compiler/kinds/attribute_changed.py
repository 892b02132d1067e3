"""An attribute that forward sets: a cached mask."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.mask = None

    def forward(self, x):
        if self.mask is None or self.mask.shape[0] != x.shape[-1]:
            self.mask = torch.triu(torch.full((x.shape[-1], x.shape[-1]), float("-inf")), 1)
        return torch.softmax(x * 2 + self.mask, -1)


def get_inputs():
    return [torch.randn(3, 9, 9)]
