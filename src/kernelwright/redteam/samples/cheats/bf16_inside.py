"""Adds, scales and clamps in BF16 and converts the result back: the dtype is right, the low sixteen bits are zero.

Problem: scale_add
Code: inaccurate
Device: both
"""

import torch


def scale_add(x, y):
    return torch.relu((x.bfloat16() + y.bfloat16()) * 0.5).float()
