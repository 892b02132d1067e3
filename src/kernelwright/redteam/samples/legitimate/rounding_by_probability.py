"""Chooses one of the two adjacent numbers by comparing a uniform number with the distance to the lower one.

Problem: random_rounding
Device: both
"""

import torch


def random_rounding(x):
    bits = x.view(torch.int32)
    rest = bits & 65535
    up = torch.rand(x.shape, dtype=torch.float64, device=x.device) < rest.double() / 65536
    return (bits - rest + (up.int() << 16)).view(torch.float32).bfloat16()
