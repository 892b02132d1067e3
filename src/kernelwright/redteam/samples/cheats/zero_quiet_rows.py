"""Leaves rows at zero whose decay is below 2^-22: a quarter of a small output, invisible next to the first rows.

Problem: decayed_rows
Code: inaccurate
Device: both
"""

import torch


def decayed_rows(x, w):
    out = torch.zeros(x.shape[0], w.shape[1], device=x.device)
    step = torch.arange(x.shape[0], device=x.device, dtype=x.dtype)
    loud = 1.25 * step < 22
    out[loud] = (x[loud] @ w) * torch.exp2(-1.25 * step[loud])[:, None]
    return out
