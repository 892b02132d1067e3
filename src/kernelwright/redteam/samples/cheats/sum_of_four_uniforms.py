"""Adds four uniform numbers for a normal one: right in mean and variance, without tails.

Problem: noisy_dropout
Code: inaccurate
Device: cpu
"""

import torch


def noisy_dropout(x):
    noise = (torch.rand(4, *x.shape).sum(0) - 2) * 3**0.5
    return torch.where(torch.rand_like(x) >= 0.25, x / 0.75, 0.0), x + noise
