"""Defaults of several types, of which the call leaves some out."""

import torch


def default_arguments(x, mask=None, *, scale=2.0, axis=-1, keep=True):
    x = x if mask is None else x.masked_fill(mask, 0.0)
    return (x * scale + 1).sum(axis, keepdim=keep)


def get_inputs():
    return [torch.randn(9, 16)], {"axis": 0}
