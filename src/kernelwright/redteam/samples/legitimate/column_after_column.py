"""Fills an output with the strides of the reference column by column, and skips what is empty.

Problem: transposed_sums
Device: both
"""

import torch


def transposed_sums(x, y):
    out, sums = x.new_empty(x.shape[::-1]).T, torch.zeros_like(y)
    for at in range(x.shape[1]):
        torch.add(y, x[:, at], alpha=2, out=out[:, at])
        sums += x[:, at]
    return out, sums
