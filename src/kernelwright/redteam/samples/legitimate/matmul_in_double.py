"""Multiplies in FP64 and rounds once.

Problem: matmul
Device: both
"""


def matmul(a, b):
    return (a.double() @ b.double()).float()
