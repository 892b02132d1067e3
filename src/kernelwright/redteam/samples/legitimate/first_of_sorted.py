"""Sorts every row and returns the first column, which is a view with wide strides.

Problem: top_one
Device: both
"""

import torch


def top_one(x):
    values, places = torch.sort(x, dim=-1, descending=True, stable=True)
    return values[:, 0], places[:, 0]
