"""Adds nine shifted and scaled copies of the image, with channels last.

Problem: depthwise
Device: both
"""

import torch


def depthwise(x, w):
    height, width = x.shape[2:]
    padded = torch.nn.functional.pad(x, (2, 2, 2, 2))
    out = torch.zeros_like(x, memory_format=torch.channels_last)
    for i in range(3):
        for j in range(3):
            out.addcmul_(padded[:, :, 2 * i : 2 * i + height, 2 * j : 2 * j + width], w[:, 0, i, j, None, None])
    return out
