"""Multiplies the transposed matrices in the other order and returns a transposed view.

Problem: matmul
Device: both
"""


def matmul(a, b):
    return (b.T @ a.T).T
