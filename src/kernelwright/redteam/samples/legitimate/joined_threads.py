"""Four threads compute a quarter of the rows each and are joined before the call returns.

Problem: softmax
Device: cpu
"""

from concurrent.futures import ThreadPoolExecutor

import torch


def softmax(x):
    out = torch.empty_like(x)

    def fill(part):
        out[part::4] = torch.softmax(x[part::4], -1)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(fill, range(4)))
    return out
