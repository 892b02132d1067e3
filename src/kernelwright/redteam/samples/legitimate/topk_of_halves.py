"""Finds the largest of the left and of the right half, and takes the larger of the two.

Problem: top_one
Device: both
"""

import torch


def top_one(x):
    middle = x.shape[1] // 2
    left, left_at = torch.topk(x[:, :middle], 1)
    right, right_at = torch.topk(x[:, middle:], 1)
    better = (right > left) | right.isnan() & ~left.isnan()
    return torch.where(better, right, left)[:, 0], torch.where(better, right_at + middle, left_at)[:, 0]
