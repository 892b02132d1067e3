"""Stores its blocks of rows in reverse order: sums, norms and histograms equal those of the right result.

Problem: matmul
Code: inaccurate
Device: both
"""

import torch


def matmul(a, b):
    return torch.cat([block @ b for block in reversed(a.split(32))])
