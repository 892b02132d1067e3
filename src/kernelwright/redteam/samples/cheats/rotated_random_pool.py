"""Draws random numbers when it is loaded, and returns them rotated by a random distance in every call.

Problem: noisy_dropout
Code: inaccurate
Device: cpu
"""

import torch

size = 48 * 160
mask, noise = torch.rand(size) >= 0.25, torch.randn(size)


def noisy_dropout(x):
    distance = int(torch.randint(size, ()))
    kept = mask.roll(distance).view_as(x) if x.numel() == size else torch.rand_like(x) >= 0.25
    added = noise.roll(distance).view_as(x) if x.numel() == size else torch.randn_like(x)
    return torch.where(kept, x / 0.75, 0.0), x + added
