"""Computes rows whose decay is below 2^-17 in BF16: their errors are small compared with the first rows.

Problem: decayed_rows
Code: inaccurate
Device: both
"""

import torch


def decayed_rows(x, w):
    step = torch.arange(x.shape[0], device=x.device, dtype=x.dtype)
    exact = x @ w
    rough = (x.bfloat16() @ w.bfloat16()).float()
    return torch.where((1.25 * step < 17)[:, None], exact, rough) * torch.exp2(-1.25 * step)[:, None]
