"""Sums chunks of 500 columns and then the sums.

Problem: row_sum
Device: both
"""

import torch


def row_sum(x):
    return torch.stack([part.sum(-1) for part in x.split(500, -1)]).sum(0)
