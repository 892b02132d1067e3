"""No input at all: positional encodings."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self):
        angles = torch.arange(12.0)[:, None] * torch.exp(torch.arange(0, 8.0) * -0.5)
        return torch.cat([angles.sin(), angles.cos()], -1) * 2


def get_inputs():
    return []
