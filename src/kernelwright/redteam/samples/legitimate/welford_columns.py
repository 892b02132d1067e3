"""Mean and variance by Welford's method in FP64, column by column for all rows at once.

Problem: layer_norm
Device: both
"""

import torch


def layer_norm(x, norm_weight, norm_bias):
    wide = x.double()
    mean, spread = torch.zeros_like(wide[:, 0]), torch.zeros_like(wide[:, 0])
    for count, column in enumerate(wide.unbind(-1), 1):
        away = column - mean
        mean = mean + away / count
        spread = spread + away * (column - mean)
    scale = torch.rsqrt(spread / x.shape[-1] + 1e-5)
    return ((wide - mean[:, None]) * scale[:, None] * norm_weight + norm_bias).float()
