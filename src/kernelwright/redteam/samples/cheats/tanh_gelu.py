"""Computes the tanh form of GELU instead of the one with the error function, 5e-4 off at worst.

Problem: gelu
Code: inaccurate
Device: both
"""

import torch


def gelu(x):
    return torch.nn.functional.gelu(x, approximate="tanh")
