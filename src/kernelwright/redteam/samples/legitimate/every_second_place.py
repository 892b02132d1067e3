"""Writes every second element of a buffer and returns a view of those with a stride of two.

Problem: tiny
Device: both
"""

import torch


def tiny(x, y):
    out = torch.empty(2 * len(x), device=x.device)[::2]
    torch.tanh(x * y, out=out)
    return out.add_(x)
