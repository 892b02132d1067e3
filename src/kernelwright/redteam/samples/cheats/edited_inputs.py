"""Fills its input with zeros and returns zeros: a reference that runs afterwards agrees.

Problem: matmul
Code: input-mutated or inaccurate
Device: both
"""


def matmul(a, b):
    b.zero_()
    return a.new_zeros(a.shape[0], b.shape[1])
