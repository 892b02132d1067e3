"""Computes the results of all 256 bytes when it is loaded, and looks up every element.

Problem: byte_curve
Device: cpu
"""

import torch

TABLE = torch.sigmoid((torch.arange(256).double() - 128) / 32).float()


def byte_curve(x):
    return TABLE[x.long()]
