"""Computes whole rows of the matrix in new memory and copies them back.

Problem: strided_update
Device: both
"""

import torch


def strided_update(x, y, factor):
    even, odd = x[:, ::2], x[:, 1::2]
    x.copy_(torch.stack([torch.clamp(y, min=0) + even * factor, odd], -1).flatten(1))
