"""Sorts, marks where a new value begins, and counts the marks.

Problem: distinct
Device: both
"""

import torch


def distinct(labels):
    ordered, order = labels.flatten().sort()
    begins = torch.ones_like(ordered, dtype=torch.bool)
    begins[1:] = ordered[1:] != ordered[:-1]
    inverse = torch.empty_like(order).scatter_(0, order, begins.cumsum(0) - 1)
    first = begins.nonzero()[:, 0]
    ends = torch.cat([first[1:], first.new_tensor([len(ordered)])])
    return ordered[begins], inverse.view(labels.shape), ends - first
