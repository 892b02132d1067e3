"""Computes one column of the factor after another from the product of the columns before, in FP64.

Problem: cholesky_factor
Device: both
"""

import torch


def cholesky_factor(a):
    bounded = torch.tanh(a.double())
    matrix = bounded @ bounded.T / len(a)
    matrix.diagonal().add_(1)
    factor = torch.zeros_like(matrix)
    for i in range(len(a)):
        column = matrix[i:, i] - factor[i:, :i] @ factor[i, :i]
        factor[i:, i] = column / column[0].sqrt()
    return factor.to(a.dtype)
