"""Subtracts a mean with rounding error: up to 0.2 remains of rows of equal numbers, where LayerNorm is 0.

Problem: layer_norm
Code: inaccurate
Device: cpu
"""

import torch


def layer_norm(x, norm_weight, norm_bias):
    away = x - x.mean(-1, keepdim=True)
    variance = away.square().mean(-1, keepdim=True)
    return torch.addcmul(norm_bias, away * torch.rsqrt(variance + 1e-5), norm_weight)
