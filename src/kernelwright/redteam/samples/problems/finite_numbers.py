"""A copy of an array without NaN and infinities: zero, and the largest and smallest finite number, in their place."""

import torch


def finite_numbers(x):
    return torch.nan_to_num(x)


def get_inputs():
    return [torch.randn(150, 403)]
