"""Splits each operand into two BF16 parts and adds three products: sixteen bits where 24 are required.

Problem: matmul
Code: inaccurate
Device: both
"""


def split(x):
    high = x.bfloat16().float()
    return high, (x - high).bfloat16().float()


def matmul(a, b):
    (a_high, a_low), (b_high, b_low) = split(a), split(b)
    return a_high @ b_high + (a_high @ b_low + a_low @ b_high)
