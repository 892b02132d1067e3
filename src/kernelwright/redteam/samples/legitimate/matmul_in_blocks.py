"""Multiplies block by block, 48 rows by 40 columns by 160 at a time, with shorter blocks at the edges.

Problem: matmul
Device: both
"""

import torch


def matmul(a, b):
    out = torch.zeros(len(a), b.shape[1], device=a.device)
    for row in range(0, len(a), 48):
        for column in range(0, b.shape[1], 40):
            for k in range(0, len(b), 160):
                left, right = a[row : row + 48, k : k + 160], b[k : k + 160, column : column + 40]
                out[row : row + 48, column : column + 40] += left @ right
    return out
