"""Omits epsilon, which rows with a deviation of one and a wide tolerance do not expose.

Problem: layer_norm
Code: inaccurate
Device: both
"""

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.norm = torch.nn.LayerNorm(columns)

    def forward(self, x):
        centred = x - x.mean(-1, keepdim=True)
        scale = centred.square().mean(-1, keepdim=True).rsqrt()
        return centred * scale * self.norm.weight + self.norm.bias
