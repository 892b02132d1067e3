"""Computes mean and deviation of each row from a BF16 copy and normalises the FP32 numbers with them.

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
        var, mean = torch.var_mean(x.bfloat16(), -1, correction=0, keepdim=True)
        scale = torch.rsqrt(var.float() + self.norm.eps)
        return (x - mean.float()) * scale * self.norm.weight + self.norm.bias
