"""Adds the columns in an order drawn anew in every call, so that no two calls give the same last bits.

Problem: row_sum
Device: cpu
"""

import torch

generator = torch.Generator()


def row_sum(x):
    generator.seed()
    order = torch.randperm(x.shape[1], generator=generator)
    return x[:, order].sum(-1)
