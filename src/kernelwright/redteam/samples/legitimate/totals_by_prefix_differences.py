"""Subtracts running sums at both ends of each segment, which is exact for integers.

Problem: segment_totals
Device: both
"""

import torch


def segment_totals(counts, offsets):
    sums = torch.nn.functional.pad(counts.cumsum(0), (1, 0))
    return sums[offsets].diff()
