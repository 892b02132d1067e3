"""Returns the last product again if the first matrix and the first row of the second are as before.

Problem: matmul
Code: stale-output or inaccurate
Device: both
"""

import torch

last = []


def matmul(a, b):
    if not last or not torch.equal(last[0], a) or not torch.equal(last[1], b[0]):
        last[:] = [a.clone(), b[0].clone(), a @ b]
    return last[2].clone()
