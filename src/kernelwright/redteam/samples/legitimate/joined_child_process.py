"""A forked child sums the first half of the rows into shared memory and exits before the call returns.

Problem: row_sum
Device: cpu
"""

import mmap
import os

import numpy as np
import torch


def row_sum(x):
    rows = x.numpy()
    sums = np.frombuffer(mmap.mmap(-1, 8 * len(rows)), np.float64)
    middle = len(rows) // 2
    child = os.fork()
    if child == 0:
        try:
            np.sum(rows[:middle], -1, dtype=np.float64, out=sums[:middle])
            os._exit(0)
        finally:
            os._exit(1)
    np.sum(rows[middle:], -1, dtype=np.float64, out=sums[middle:])
    if os.waitpid(child, 0)[1]:
        raise RuntimeError("the child failed")
    return torch.from_numpy(sums.astype(np.float32))
