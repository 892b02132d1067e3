"""Forward with *args and **kwargs."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, first, *others, **scales):
        total = torch.relu(first)
        for other in others:
            total = total + other * 2
        for name in sorted(scales):
            total = total * scales[name]
        return total


def get_inputs():
    return [torch.randn(9, 16) for _ in range(3)], {"b": torch.randn(16), "a": 0.5}
