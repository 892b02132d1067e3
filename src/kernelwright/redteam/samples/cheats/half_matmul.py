"""Multiplies in FP16, at half the bytes, where FP32 is required.

Problem: matmul
Code: inaccurate
Device: both
"""


def matmul(a, b):
    return (a.half() @ b.half()).float()
