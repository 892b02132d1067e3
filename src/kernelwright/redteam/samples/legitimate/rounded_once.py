"""Computes in FP32 and rounds to BF16 once, at the end.

Problem: half_gelu
Device: both
"""

import math

import torch


def half_gelu(x):
    wide = x.float()
    return (wide * 0.5 * torch.special.erfc(wide * -math.sqrt(0.5))).bfloat16()
