"""Computes half of K in FP32 and the other half in BF16, so that the mean error halves.

Problem: matmul
Code: inaccurate
Device: both
"""

import torch


def matmul(a, b):
    half = a.shape[1] // 2
    rest = a[:, half:].bfloat16().float() @ b[half:].bfloat16().float()
    return torch.addmm(rest, a[:, :half], b[:half])
