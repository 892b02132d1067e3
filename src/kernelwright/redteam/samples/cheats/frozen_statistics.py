"""Normalises by the batch and does not update the running statistics, which no output shows.

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
        return torch.nn.functional.batch_norm(x, None, None, self.norm.weight, self.norm.bias, training=True)
