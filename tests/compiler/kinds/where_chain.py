"""A piecewise function as a chain of torch.where."""

import torch


def where_chain(x):
    y = torch.where(x < -1, -x, x * x)
    y = torch.where(x > 1, torch.sqrt(x.abs()), y)
    return torch.where(torch.isnan(y), torch.zeros_like(y), y + 1)


def get_inputs():
    return [torch.randn(9, 16)]
