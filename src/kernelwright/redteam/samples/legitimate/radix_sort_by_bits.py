"""Sorts by one bit after the other, the lowest first, from running counts of zeros and ones.

Problem: stable_order
Device: both
"""

import torch


def stable_order(keys):
    lowest = keys.min()
    rest, places = keys - lowest, torch.arange(keys.shape[-1], device=keys.device).expand_as(keys)
    for bit in range(int(rest.max()).bit_length()):
        ones = (rest >> bit) & 1
        zeros_before = (1 - ones).cumsum(-1)
        ones_before = zeros_before[..., -1:] + ones.cumsum(-1)
        target = torch.where(ones == 1, ones_before, zeros_before) - 1
        rest = torch.empty_like(rest).scatter_(-1, target, rest)
        places = torch.empty_like(rest).scatter_(-1, target, places)
    return rest + lowest, places.contiguous()
