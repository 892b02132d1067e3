"""Scales by the magnitude of its weights, which are ones in every new module.

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
        return torch.nn.functional.layer_norm(x, x.shape[-1:], self.norm.weight.abs(), self.norm.bias, self.norm.eps)
