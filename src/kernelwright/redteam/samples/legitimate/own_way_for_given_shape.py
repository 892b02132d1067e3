"""Has its own implementation for rows of 512 and uses torch for all others.

Problem: many_rows
Device: both
"""

import torch


def many_rows(x):
    if x.shape[-1] == 512:
        shifted = torch.exp(x - x.amax(-1, keepdim=True))
        return shifted / shifted.sum(-1, keepdim=True)
    return torch.softmax(x, -1)
