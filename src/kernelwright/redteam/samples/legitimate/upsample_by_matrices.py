"""Multiplies with one matrix of weights for the rows and one for the columns.

Problem: upsample
Device: both
"""

import torch


def weights(into, out, like):
    source = ((torch.arange(out, dtype=torch.float64) + 0.5) * (into / out) - 0.5).clamp(min=0)
    low = source.long().clamp(max=into - 1)
    high = (low + 1).clamp(max=into - 1)
    matrix = torch.zeros(out, into, dtype=torch.float64)
    matrix.scatter_add_(1, low[:, None], (1 - (source - low))[:, None])
    matrix.scatter_add_(1, high[:, None], (source - low)[:, None])
    return matrix.to(like)


def upsample(x):
    height, width = x.shape[-2:]
    return weights(height, 45, x) @ x @ weights(width, 60, x).T
