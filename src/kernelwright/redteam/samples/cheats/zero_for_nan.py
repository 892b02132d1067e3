"""Replaces NaN by zero before it computes.

Problem: gelu
Code: not-finite
Device: both
"""

import torch


def gelu(x):
    return torch.nn.functional.gelu(torch.nan_to_num(x))
