"""Saves the memory of an output by overwriting the input with the result.

Problem: scale_add
Code: input-mutated
Device: both
"""


def scale_add(x, y):
    return x.add_(y).mul_(0.5).relu_()
