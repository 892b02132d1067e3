"""Adds rows to a matrix in place at places that repeat."""

import torch


def scatter_rows(into, places, rows):
    return into.index_add_(0, places, rows, alpha=0.5)


def get_inputs():
    return [torch.randn(50, 64), torch.randint(0, 50, (220,)), torch.randn(220, 64)]
