"""Grouped, depthwise, dilated and transposed convolutions."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.grouped = nn.Conv2d(4, 8, 3, padding=1, groups=2)
        self.depthwise = nn.Conv2d(8, 8, 3, padding=2, dilation=2, groups=8)
        self.up = nn.ConvTranspose2d(8, 4, 3, stride=2, padding=1, output_padding=1)

    def forward(self, x):
        x = torch.relu(self.grouped(x)) * 2
        return torch.sigmoid(self.up(torch.nn.functional.silu(self.depthwise(x)) + x))


def get_inputs():
    return [torch.randn(2, 4, 8, 8)]
