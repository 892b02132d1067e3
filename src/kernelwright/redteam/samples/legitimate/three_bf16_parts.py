"""Splits each number into three BF16 parts, which hold all its bits, and sums the products of the parts in FP64.

Problem: matmul
Device: both
"""


def parts_of(x):
    found = []
    for _ in range(3):
        part = x.bfloat16()
        found.append(part.double())
        x = x - part.float()
    return found


def matmul(a, b):
    left, right = parts_of(a), parts_of(b)
    pairs = [(i, j) for i in range(3) for j in range(3) if i + j < 3]
    return sum(left[i] @ right[j] for i, j in reversed(pairs)).float()
