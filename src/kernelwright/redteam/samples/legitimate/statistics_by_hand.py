"""Batch normalisation written out, with running statistics updated explicitly: the running variance is unbiased.

Problem: running_norm
Device: both
"""

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(channels)

    def forward(self, x):
        norm, count = self.norm, len(x)
        away = x - x.mean(0)
        variance = away.square().mean(0)
        with torch.no_grad():
            norm.running_mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
            norm.running_var.mul_(0.9).add_(variance * (count / (count - 1)), alpha=0.1)
            norm.num_batches_tracked += 1
        return away / torch.sqrt(variance + norm.eps) * norm.weight + norm.bias
