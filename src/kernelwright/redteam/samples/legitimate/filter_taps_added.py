"""Adds nine shifted products of 1 by 1, one for each filter tap, column by column.

Problem: convolution
Device: both
"""

import torch


def convolution(x, w):
    height, width = x.shape[2:]
    padded = torch.nn.functional.pad(x, (1, 1, 1, 1))
    out = torch.zeros(x.shape[0], w.shape[0], height, width, device=x.device)
    for column in range(3):
        for row in range(3):
            shifted = padded[:, :, row : row + height, column : column + width]
            out += torch.einsum("oc,nchw->nohw", w[:, :, row, column], shifted)
    return out
