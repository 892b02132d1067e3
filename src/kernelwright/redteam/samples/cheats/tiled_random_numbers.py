"""Draws random numbers for the first eight rows and reuses them, in another order of the rows, for the others.

Problem: noisy_dropout
Code: inaccurate
Device: cpu
"""

import torch


def noisy_dropout(x):
    order = torch.randperm(x.shape[0]) % 8
    kept = (torch.rand(8, x.shape[1]) >= 0.25)[order]
    return torch.where(kept, x / 0.75, 0.0), x + torch.randn(8, x.shape[1])[order]
