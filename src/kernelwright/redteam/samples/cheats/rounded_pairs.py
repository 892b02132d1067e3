"""Adds adjacent numbers in BF16 first, half the numbers at half the width, and only these sums in FP32.

Problem: row_sum
Code: inaccurate
Device: both
"""

import torch


def row_sum(x):
    whole = x.shape[1] // 2 * 2
    pairs = x[:, :whole:2].bfloat16() + x[:, 1:whole:2].bfloat16()
    return pairs.sum(-1, dtype=torch.float32) + x[:, whole:].sum(-1)
