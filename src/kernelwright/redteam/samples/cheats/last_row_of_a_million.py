"""Computes the last row of a large output, and no other, in BF16.

Problem: large_decay
Code: inaccurate
Device: both
"""

import torch


def large_decay(x):
    rows = x.shape[0]
    gate = torch.exp2(torch.arange(rows, device=x.device, dtype=x.dtype) * (-30 / rows))
    out = x * gate[:, None]
    out[-1] = x[-1].bfloat16() * gate[-1].bfloat16()
    return out
