"""Computes every second element of rows whose decay is below 2^-24 and copies it to the next one, of over a million.

Problem: large_decay
Code: inaccurate
Device: both
"""

import torch


def large_decay(x):
    rows = x.shape[0]
    gate = torch.exp2(torch.arange(rows, device=x.device, dtype=x.dtype) * (-30 / rows))
    out = x * gate[:, None]
    flat, first = out.view(-1), (4 * rows // 5) * x.shape[1]
    first += first % 2
    flat[first + 1 :: 2] = flat[first::2][: flat[first + 1 :: 2].numel()]
    return out
