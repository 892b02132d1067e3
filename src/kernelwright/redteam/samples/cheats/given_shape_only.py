"""Is right for rows of 512 and takes the first 512 elements of longer ones for the whole row.

Problem: many_rows
Code: inaccurate
Device: both
"""

import torch


def many_rows(x):
    shifted = torch.exp(x - x.amax(-1, keepdim=True))
    return shifted / shifted[..., :512].sum(-1, keepdim=True)
