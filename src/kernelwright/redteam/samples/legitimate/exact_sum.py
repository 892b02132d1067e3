"""Sums each row exactly, in plain Python, and rounds once: slow and better than the reference.

Problem: row_sum
Device: cpu
"""

import math

import torch


def row_sum(x):
    return torch.tensor([math.fsum(row) for row in x.tolist()], dtype=torch.float32)
