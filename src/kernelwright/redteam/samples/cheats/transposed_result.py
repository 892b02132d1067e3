"""Returns the product with rows and columns exchanged: same numbers, same norm, another shape.

Problem: matmul
Code: wrong-shape
Device: both
"""


def matmul(a, b):
    return b.T @ a.T
