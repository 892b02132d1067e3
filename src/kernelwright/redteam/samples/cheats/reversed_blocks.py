"""Stores its blocks of rows in reverse: sums, norms and histograms of the answer are those of the right one.

Problem: matmul
Code: inaccurate
Device: both
"""

import torch


def matmul(a, b):
    return torch.cat([block @ b for block in reversed(a.split(32))])
