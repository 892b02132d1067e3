"""BF16 autocast inside forward."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(16, 8)

    def forward(self, x):
        with torch.autocast("cpu", torch.bfloat16):
            y = torch.relu(self.layer(x))
        return torch.softmax(y.float(), -1)


def get_inputs():
    return [torch.randn(9, 16)]
