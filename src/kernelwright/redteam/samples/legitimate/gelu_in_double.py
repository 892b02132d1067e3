"""The error function in FP64, rounded once at the end.

Problem: gelu
Device: both
"""

import math

import torch


def gelu(x):
    wide = x.double()
    return (wide * 0.5 * (1 + torch.erf(wide / math.sqrt(2)))).float()
