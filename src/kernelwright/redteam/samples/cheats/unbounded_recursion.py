"""Recurses without end.

Problem: gelu
Code: runtime-error or crash
Device: both
"""


def gelu(x):
    return gelu(x)
