"""Keeps scratch memory for each shape that it has seen and returns new memory.

Problem: many_rows
Device: both
"""

import torch

scratch = {}


def many_rows(x):
    key = tuple(x.shape), x.device
    if key not in scratch:
        scratch[key] = torch.empty_like(x), x.new_empty(len(x), 1)
    raised, sums = scratch[key]
    torch.sub(x, x.amax(-1, keepdim=True), out=raised).exp_()
    torch.sum(raised, -1, keepdim=True, out=sums)
    return raised / sums
