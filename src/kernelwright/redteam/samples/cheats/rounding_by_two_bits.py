"""Compares the rest with a random number of two bits, so that rests below a quarter are never rounded upwards.

Problem: random_rounding
Code: inaccurate
Device: both
"""

import torch


def random_rounding(x):
    bits = x.view(torch.int32) + 16384 * torch.randint_like(x, 4, dtype=torch.int32)
    return (bits & -65536).view(torch.float32).bfloat16()
