"""Rows divided by their length, or by a small number if they are shorter."""

import torch


def unit_rows(x):
    return torch.nn.functional.normalize(x, dim=-1)


def get_inputs():
    return [torch.randn(120, 253)]
