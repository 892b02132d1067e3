"""One real product of a block matrix of twice the size, in FP32.

Problem: complex_product
Device: both
"""

import torch


def complex_product(a, b):
    left = torch.cat([torch.cat([a.real, -a.imag], 1), torch.cat([a.imag, a.real], 1)])
    return torch.complex(*(left @ torch.cat([b.real, b.imag])).chunk(2))
