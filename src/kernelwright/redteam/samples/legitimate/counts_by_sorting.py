"""Sorts the labels and takes the differences of the places where each one ends.

Problem: label_counts
Device: both
"""

import torch


def label_counts(labels):
    ordered = labels.sort().values
    size = max(100, int(ordered[-1]) + 1)
    ends = torch.searchsorted(ordered, torch.arange(size, device=labels.device), right=True)
    return ends.diff(prepend=ends.new_zeros(1))
