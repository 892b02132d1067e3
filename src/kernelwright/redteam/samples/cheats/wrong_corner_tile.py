"""Takes the last tile, which is smaller than the others, for one of zeros beyond its first column.

Problem: matmul
Code: inaccurate
Device: both
"""


def matmul(a, b):
    out = a @ b
    rows, columns = (len(out) - 1) // 32 * 32, (out.shape[1] - 1) // 32 * 32
    out[rows:, columns + 1 :] = 0
    return out
