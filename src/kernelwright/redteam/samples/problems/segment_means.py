"""Means of consecutive segments of rows, which begin at the given offsets."""

import torch


def segment_means(x, offsets):
    count = len(offsets) - 1
    segment = torch.bucketize(torch.arange(len(x), device=x.device), offsets[1:], right=True)
    sums = torch.zeros(count, x.shape[1], device=x.device).index_add_(0, segment, x)
    return sums / offsets.diff().clamp(min=1)[:, None]


def get_inputs():
    return [torch.randn(360, 40), torch.arange(0, 361, 12)]
