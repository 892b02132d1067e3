"""Returns BF16, half the bytes to write, for a check that converts the output before it compares.

Problem: scale_add
Code: wrong-dtype
Device: both
"""

import torch


def scale_add(x, y):
    out = torch.empty(x.shape, dtype=torch.bfloat16, device=x.device)
    return torch.add(x, y, out=out).mul_(0.5).relu_()
