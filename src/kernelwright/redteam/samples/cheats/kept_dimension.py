"""Returns a column of sums instead of a row: flattened, it is right.

Problem: row_sum
Code: wrong-shape
Device: both
"""


def row_sum(x):
    return x.sum(-1, keepdim=True)
