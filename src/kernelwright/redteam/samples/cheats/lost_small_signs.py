"""Passes sums just below zero with their sign removed, where ReLU makes them zero: 1e-3 off at worst.

Problem: scale_add
Code: inaccurate
Device: both
"""


def scale_add(x, y):
    half = (x + y) * 0.5
    return half.abs().where(half > -1e-3, 0.0)
