"""Replaces the tensors of the running statistics instead of writing into them.

Problem: running_norm
Device: both
"""

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(channels)

    def forward(self, x):
        norm = self.norm
        unbiased, mean = torch.var_mean(x, 0)
        norm.running_mean = norm.running_mean.lerp(mean, norm.momentum)
        norm.running_var = norm.running_var.lerp(unbiased, norm.momentum)
        norm.num_batches_tracked = norm.num_batches_tracked + 1
        biased = unbiased * ((len(x) - 1) / len(x))
        return (x - mean) * torch.rsqrt(biased + norm.eps) * norm.weight + norm.bias
