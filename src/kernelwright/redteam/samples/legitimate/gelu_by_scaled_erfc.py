"""The tail of the normal distribution as an exponential times the scaled complement of the error function.

Problem: gelu
Device: both
"""

import math

import torch


def gelu(x):
    wide = x.double()
    tail = 0.5 * torch.exp(-wide.square() / 2) * torch.special.erfcx(wide.abs() / math.sqrt(2))
    return (wide * torch.where(wide < 0, tail, 1 - tail)).float()
