"""Calculates for each output which element it is, and gathers all of them at once.

Problem: reflected_windows
Device: both
"""

import torch


def reflected_windows(x, shift):
    length = x.shape[-1]
    padded = length + 14
    first = torch.arange(0, padded - 15, 4, device=x.device)
    place = (first[:, None] + torch.arange(15, -1, -1, device=x.device) - shift) % padded - 5
    place = place.abs()
    place = torch.where(place >= length, 2 * (length - 1) - place, place)
    return x[:, place]
