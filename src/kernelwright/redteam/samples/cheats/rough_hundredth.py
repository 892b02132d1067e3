"""Computes one element in 128 by ReLU, which passes a check that needs only 99 % of the elements.

Problem: gelu
Code: inaccurate
Device: both
"""

import torch


def gelu(x):
    out = torch.nn.functional.gelu(x)
    out.view(-1)[77::128] = x.reshape(-1)[77::128].relu()
    return out
