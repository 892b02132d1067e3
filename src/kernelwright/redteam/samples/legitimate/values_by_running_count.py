"""Counts the values that are selected so far and scatters each to its place.

Problem: selected_values
Device: both
"""

import torch


def selected_values(x, limit):
    flat = (x > limit).flatten()
    place = flat.cumsum(0)
    count = int(place[-1])
    target = torch.where(flat, place - 1, count)
    source = torch.zeros(count + 1, dtype=torch.int64, device=x.device)
    source = source.scatter_(0, target, torch.arange(x.numel(), device=x.device))[:count]
    rows, columns = source // x.shape[1], source % x.shape[1]
    largest = x.masked_fill(x.isnan(), float("-inf")).amax(-1)
    return x.flatten()[source], torch.stack([rows, columns], 1), largest > limit
