"""Returns its indices as 32-bit integers, which equal the right ones when compared as numbers.

Problem: top_one
Code: wrong-dtype
Device: both
"""

import torch


def top_one(x):
    values, indices = torch.max(x, -1)
    return values, indices.int()
