"""Times three block sizes in the first call for each shape and uses the fastest from then on.

Problem: matmul
Device: cpu
"""

import time

import torch

fastest = {}


def by_rows(a, b, size):
    return torch.cat([a[row : row + size] @ b for row in range(0, len(a), size)])


def duration(a, b, size):
    start = time.perf_counter()
    by_rows(a, b, size)
    return time.perf_counter() - start


def matmul(a, b):
    shape = a.shape, b.shape
    if shape not in fastest:
        fastest[shape] = min((32, 64, 256), key=lambda size: duration(a, b, size))
    return by_rows(a, b, fastest[shape])
