"""Computes tanh by a continued fraction of four steps: most of the 64 numbers are off in their last digits.

Problem: tiny
Code: inaccurate
Device: both
"""


def tiny(x, y):
    z = (x * y).clamp(-4.5, 4.5)
    square = z * z
    fraction = 7 + square / 9
    for odd in (5, 3, 1):
        fraction = odd + square / fraction
    return z / fraction + x
