"""The rank of every element in its row; equal elements have the order of their places."""

import torch


def ranks(x):
    return x.argsort(dim=-1, stable=True).argsort(-1)


def get_inputs():
    return [torch.randn(30, 150)]
