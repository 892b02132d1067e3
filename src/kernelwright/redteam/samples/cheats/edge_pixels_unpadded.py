"""Reads one pixel less at the lower right corner of the last channel of every image.

Problem: convolution
Code: inaccurate
Device: both
"""

import torch


def convolution(x, w):
    out = torch.nn.functional.conv2d(x, w, padding=1)
    out[:, -1, -1, -1] -= (x[:, :, -1, -1] * w[-1, :, 1, 1]).sum(-1)
    return out
