"""Adds integers of 64 bits in sixteen bits, in which the sums of the given segments fit.

Problem: segment_totals
Code: inaccurate
Device: both
"""

import torch


def segment_totals(counts, offsets):
    places = torch.arange(len(counts), device=counts.device)
    segment = torch.bucketize(places, offsets[1:], right=True)
    totals = torch.zeros(len(offsets) - 1, dtype=torch.int16, device=counts.device)
    return totals.index_add_(0, segment, counts.short()).long()
