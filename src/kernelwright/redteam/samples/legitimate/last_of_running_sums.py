"""Computes all running sums of each row in FP64 and keeps the last.

Problem: row_sum
Device: both
"""

import torch


def row_sum(x):
    return torch.cumsum(x, -1, dtype=torch.float64)[:, -1].float()
