"""Normalises by the running statistics, one pass less, before it adds the batch to them.

Problem: running_norm
Code: inaccurate
Device: both
"""

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(channels)

    def forward(self, x):
        norm = self.norm
        out = torch.nn.functional.batch_norm(x, norm.running_mean, norm.running_var, norm.weight, norm.bias)
        norm(x)
        return out
