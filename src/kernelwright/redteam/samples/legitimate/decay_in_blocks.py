"""Multiplies the decay in two factors, one of the block and one within it, and the product in blocks of 16 terms.

Problem: decayed_rows
Device: both
"""

import torch


def decayed_rows(x, w):
    step = torch.arange(x.shape[0], device=x.device)
    within, block = torch.exp2(-1.25 * (step % 6))[:, None], torch.exp2(-1.25 * (step // 6 * 6))[:, None]
    out = torch.zeros(x.shape[0], w.shape[1], device=x.device)
    for at in range(0, x.shape[1], 16):
        out = torch.addmm(out, within * x[:, at : at + 16], w[at : at + 16])
    return out * block
