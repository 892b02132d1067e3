"""Adds pairs up a tree and passes the sums of what is to the left down again (Blelloch).

Problem: running_sum
Device: both
"""

import torch


def exclusive_sums(x):
    if x.shape[-1] == 1:
        return torch.zeros_like(x)
    even, odd = x[..., ::2], x[..., 1::2]
    before = exclusive_sums(even + odd)
    return torch.stack([before, before + even], -1).flatten(-2)


def running_sum(x):
    length = x.shape[-1]
    padded = torch.nn.functional.pad(x, (0, (1 << (length - 1).bit_length()) - length))
    return exclusive_sums(padded)[..., :length] + x
