"""Solves blocks of 16 rows by substitution and subtracts them from all rows below.

Problem: triangular_system
Device: both
"""

import torch


def triangular_system(a, b):
    below, rest = torch.tanh(a) / len(a), b.clone()
    for first in range(0, len(a), 16):
        last = min(first + 16, len(a))
        for row in range(first + 1, last):
            rest[row] -= below[row, first:row] @ rest[first:row]
        rest[last:] -= below[last:, first:last] @ rest[first:last]
    return rest
