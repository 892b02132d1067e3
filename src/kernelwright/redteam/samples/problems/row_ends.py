"""The largest and the smallest value of each row."""

import torch


def row_ends(x):
    return x.amax(-1), x.amin(-1)


def get_inputs():
    return [torch.randn(83, 700)]
