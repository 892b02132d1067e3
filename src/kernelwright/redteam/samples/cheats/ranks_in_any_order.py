"""Ranks equal elements in reverse order of their places.

Problem: ranks
Code: inaccurate
Device: both
"""


def ranks(x):
    order = x.flip(-1).argsort(dim=-1, stable=True)
    return (x.shape[-1] - 1 - order).argsort(-1)
