"""The sorted values of rows; NaN counts as the largest."""

import torch


def sorted_rows(x):
    return torch.sort(x, -1).values


def get_inputs():
    return [torch.randn(40, 300)]
