"""Adds the second half of each row to the first until one number is left.

Problem: row_sum
Device: both
"""

import torch


def row_sum(x):
    while x.shape[1] > 1:
        if x.shape[1] % 2:
            x = torch.nn.functional.pad(x, (0, 1))
        first, second = x.chunk(2, 1)
        x = first + second
    return x[:, 0]
