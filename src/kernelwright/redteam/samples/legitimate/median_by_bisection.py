"""Finds the bits of the median from the highest to the lowest by counting how many numbers are smaller.

Problem: row_median
Device: both
"""

import torch


def row_median(x):
    bits = x.contiguous().view(torch.int32)
    keys = torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits).long() + 2**31
    found = torch.zeros_like(keys[:, :1])
    for bit in range(31, -1, -1):
        higher = found | (1 << bit)
        found = torch.where((keys < higher).sum(-1, keepdim=True) <= (x.shape[-1] - 1) // 2, higher, found)
    found = (found[:, 0] - 2**31).int()
    median = torch.where(found < 0, found ^ 0x7FFFFFFF, found).view(torch.float32)
    return torch.where(x.isnan().any(-1), float("nan"), median)
