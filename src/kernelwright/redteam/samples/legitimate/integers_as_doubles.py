"""Multiplies integers as FP64 numbers, which is exact below 2^53.

Problem: byte_product
Device: cpu
"""


def byte_product(a, b):
    return (a.double() @ b.double()).int()
