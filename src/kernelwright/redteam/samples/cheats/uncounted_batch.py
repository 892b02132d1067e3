"""Updates its running statistics correctly but not the batch count.

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
        return torch.nn.functional.batch_norm(
            x, norm.running_mean, norm.running_var, norm.weight, norm.bias, True, norm.momentum, norm.eps
        )
