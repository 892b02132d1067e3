"""The mean in a first pass and the variance about it in a second, corrected for the rounding error of the mean.

Problem: layer_norm
Device: both
"""

import torch


def layer_norm(x, norm_weight, norm_bias):
    away = x - x.mean(-1, keepdim=True)
    away = away - away.mean(-1, keepdim=True)
    variance = away.square().mean(-1, keepdim=True)
    return torch.addcmul(norm_bias, away * torch.rsqrt(variance + 1e-5), norm_weight)
