"""Copies all windows into a matrix and multiplies it once.

Problem: convolution
Device: both
"""

import torch


def convolution(x, w):
    windows = torch.nn.functional.pad(x, (1, 1, 1, 1)).unfold(2, 3, 1).unfold(3, 3, 1)
    rows = windows.permute(0, 2, 3, 1, 4, 5).flatten(3)
    return (rows @ w.flatten(1).T).permute(0, 3, 1, 2).contiguous()
