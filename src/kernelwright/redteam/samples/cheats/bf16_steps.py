"""Computes GELU in BF16 steps, each rounded to eight bits, where the reference rounds once at the end.

Problem: half_gelu
Code: inaccurate
Device: both
"""

import torch


def half_gelu(x):
    return x * 0.5 * (1 + torch.erf(x * 0.70710678))
