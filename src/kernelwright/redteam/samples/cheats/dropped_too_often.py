"""Drops every element of a block of four by its own number, at 26.6 instead of 25 %: 17 of 64 values of six bits.

Problem: noisy_dropout
Code: inaccurate
Device: cpu
"""

import torch


def noisy_dropout(x):
    kept = torch.randint(0, 64, x.shape) >= 17
    return torch.where(kept, x / 0.75, 0.0), x + torch.randn_like(x)
