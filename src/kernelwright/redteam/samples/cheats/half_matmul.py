"""Multiplies in FP16, at half the bytes, for a product that was asked for in FP32.

Problem: matmul
Code: inaccurate or not-finite
Device: both
"""


def matmul(a, b):
    return (a.half() @ b.half()).float()
