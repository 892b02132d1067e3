"""Returns FP64 sums, closer to the golden than any FP32 sum can be.

Problem: row_sum
Code: wrong-dtype
Device: both
"""

import torch


def row_sum(x):
    return x.sum(-1, dtype=torch.float64)
