"""Computes the sum in new memory, last row first, and copies it back into the input at the end.

Problem: increment
Device: both
"""


def increment(x, y):
    total = (x.flip(0) + y.flip(0)).flip(0)
    x.copy_(total)
    return x
