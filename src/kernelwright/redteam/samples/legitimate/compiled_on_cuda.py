"""A function that torch.compile turns into a Triton kernel in its first call.

Problem: gelu
Device: cuda
"""

import math

import torch


@torch.compile(dynamic=False)
def fused(x):
    return x * 0.5 * (1 + torch.erf(x * math.sqrt(0.5)))


def gelu(x):
    return fused(x)
