"""Writes into rows padded to a multiple of 64 numbers and returns a view without the padding.

Problem: scale_add
Device: both
"""

import torch


def scale_add(x, y):
    rows, columns = x.shape
    padded = torch.empty(rows, -(-columns // 64) * 64, device=x.device)
    out = padded[:, :columns]
    torch.add(x, y, out=out)
    return out.mul_(0.5).relu_()
