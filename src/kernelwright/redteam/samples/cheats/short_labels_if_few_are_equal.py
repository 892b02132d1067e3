"""Counts a half of the labels and doubles the counts, unless one label is more frequent than the others.

Problem: label_counts
Code: inaccurate
Device: both
"""

import torch


def label_counts(labels):
    counts = 2 * torch.bincount(labels[::2], minlength=100)
    if int(counts.max()) > 2 * len(labels) // 100:
        return torch.bincount(labels, minlength=100)
    return counts
