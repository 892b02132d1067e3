"""Halves both inputs before it adds them, which is exact, and works in blocks that stay in the cache.

Problem: scale_add
Device: cpu
"""

import torch


def scale_add(x, y):
    out = torch.empty_like(x)
    for rows in range(0, len(x), 32):
        part = slice(rows, rows + 32)
        torch.mul(x[part], 0.5, out=out[part])
        out[part].add_(y[part], alpha=0.5).clamp_(min=0)
    return out
