"""Kahan summation in 128 lanes, and again over the lanes.

Problem: row_sum
Device: both
"""

import torch


def compensated(terms):
    total = torch.zeros_like(terms[0])
    lost = torch.zeros_like(total)
    for term in terms:
        wanted = term - lost
        grown = total + wanted
        lost = (grown - total) - wanted
        total = grown
    return total


def row_sum(x):
    lanes = torch.nn.functional.pad(x, (0, -x.shape[1] % 128)).view(len(x), -1, 128)
    return compensated(compensated(lanes.unbind(1)).unbind(1))
