"""Multiplies the rows with a matrix that is one where a row belongs to a segment.

Problem: segment_means
Device: both
"""

import torch


def segment_means(x, offsets):
    row = torch.arange(len(x), device=x.device)
    member = (row >= offsets[:-1, None]) & (row < offsets[1:, None])
    return member.to(x.dtype) @ x / offsets.diff().clamp(min=1)[:, None]
