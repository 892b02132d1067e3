"""The lower median of each row."""

import torch


def row_median(x):
    return x.median(-1).values


def get_inputs():
    return [torch.randn(64, 500)]
