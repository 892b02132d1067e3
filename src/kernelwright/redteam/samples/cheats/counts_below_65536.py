"""Counts labels in integers of sixteen bits, of which no given label needs more than eleven.

Problem: label_counts
Code: inaccurate
Device: both
"""

import torch


def label_counts(labels):
    counts = torch.zeros(100, dtype=torch.int16, device=labels.device)
    counts.index_put_((labels,), torch.ones_like(labels, dtype=torch.int16), accumulate=True)
    return counts.long() & 0xFFFF
