"""Inverts a quarter and the Schur complement, recursively down to one number, in FP64.

Problem: inverse
Device: both
"""

import torch


def invert(matrix):
    middle = len(matrix) // 2
    if middle == 0:
        return 1 / matrix
    a, b, c, d = (part for half in (matrix[:middle], matrix[middle:]) for part in half.tensor_split([middle], 1))
    first = invert(a)
    left, right = c @ first, first @ b
    last = invert(d - left @ b)
    corner = right @ last
    return torch.cat([torch.cat([first + corner @ left, -corner], 1), torch.cat([-last @ left, last], 1)])


def inverse(a):
    matrix = torch.tanh(a.double()) / len(a) ** 0.5
    matrix.diagonal().add_(2)
    return invert(matrix).to(a.dtype)
