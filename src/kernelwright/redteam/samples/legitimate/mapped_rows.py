"""Describes a single row and applies torch.vmap over all rows.

Problem: softmax
Device: both
"""

import torch


def one_row(row):
    raised = torch.exp(row - row.amax())
    return raised / raised.sum()


def softmax(x):
    return torch.vmap(one_row)(x)
