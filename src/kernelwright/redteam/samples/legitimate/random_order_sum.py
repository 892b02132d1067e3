"""Adds the columns in a new random order in every call, so that the last bits differ from call to call.

Problem: row_sum
Device: cpu
"""

import torch

generator = torch.Generator()


def row_sum(x):
    generator.seed()
    order = torch.randperm(x.shape[1], generator=generator)
    return x[:, order].sum(-1)
