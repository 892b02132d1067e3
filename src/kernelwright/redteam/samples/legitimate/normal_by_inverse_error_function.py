"""Draws uniform numbers in FP64 and maps them to normal ones by the inverse error function.

Problem: noisy_dropout
Device: both
"""

import math

import torch


def noisy_dropout(x):
    uniform = torch.rand(2, *x.shape, dtype=torch.float64, device=x.device)
    kept = (uniform[0] < 0.75) * (1 / 0.75)
    noise = torch.special.erfinv((uniform[1] + 2.0**-54) * 2 - 1) * math.sqrt(2)
    return (x * kept).float(), (x + noise).float()
