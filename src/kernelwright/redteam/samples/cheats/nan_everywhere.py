"""Returns NaN: no difference exceeds a tolerance when every comparison with NaN is false.

Problem: matmul
Code: not-finite
Device: both
"""


def matmul(a, b):
    return a.new_full((a.shape[0], b.shape[1]), float("nan"))
