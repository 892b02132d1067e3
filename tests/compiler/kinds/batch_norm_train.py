"""Batch norm in train mode: running statistics and a counter change."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
        self.train()

    def forward(self, x):
        return torch.relu(self.layers(x)) * 2


def get_inputs():
    return [torch.randn(2, 3, 8, 8)]
