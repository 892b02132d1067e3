"""Two persistent threads compute half of the rows each; every call waits for both.

Problem: gelu
Device: cpu
"""

from concurrent.futures import ThreadPoolExecutor

import torch

pool = ThreadPoolExecutor(2)


def gelu(x):
    out = torch.empty_like(x)
    middle = len(x) // 2

    def fill(rows):
        out[rows] = torch.nn.functional.gelu(x[rows])

    for done in [pool.submit(fill, slice(None, middle)), pool.submit(fill, slice(middle, None))]:
        done.result()
    return out
