"""Splits each number into two parts of 12 bits, whose products are exact in FP32, and adds all four, smallest first.

Problem: matmul
Device: both
"""

import torch


def upper_half(x):
    return (x.view(torch.int32) & ~0xFFF).view(torch.float32)


def matmul(a, b):
    a, b = a.contiguous(), b.contiguous()
    a_high, b_high = upper_half(a), upper_half(b)
    a_low, b_low = a - a_high, b - b_high
    return a_low @ b_low + (a_low @ b_high + a_high @ b_low) + a_high @ b_high
