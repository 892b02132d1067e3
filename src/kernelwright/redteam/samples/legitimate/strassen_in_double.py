"""One level of Strassen's seven products on matrices padded to even sizes, in FP64, where its errors do not matter.

Problem: matmul
Device: both
"""

import torch


def padded(x):
    return torch.nn.functional.pad(x.double(), (0, x.shape[1] % 2, 0, x.shape[0] % 2))


def quarters(x):
    return [part for half in x.chunk(2, 0) for part in half.chunk(2, 1)]


def matmul(a, b):
    a11, a12, a21, a22 = quarters(padded(a))
    b11, b12, b21, b22 = quarters(padded(b))
    m1 = (a11 + a22) @ (b11 + b22)
    m2 = (a21 + a22) @ b11
    m3 = a11 @ (b12 - b22)
    m4 = a22 @ (b21 - b11)
    m5 = (a11 + a12) @ b22
    m6 = (a21 - a11) @ (b11 + b12)
    m7 = (a12 - a22) @ (b21 + b22)
    upper = torch.cat([m1 + m4 - m5 + m7, m3 + m5], 1)
    lower = torch.cat([m2 + m4, m1 - m2 + m3 + m6], 1)
    return torch.cat([upper, lower])[: len(a), : b.shape[1]].float()
