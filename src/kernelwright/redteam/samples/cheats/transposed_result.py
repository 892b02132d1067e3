"""Returns the product with its rows and columns exchanged: the same numbers, the same norm, another shape.

Problem: matmul
Code: wrong-shape
Device: both
"""


def matmul(a, b):
    return b.T @ a.T
