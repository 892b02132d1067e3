"""A program that torch.export cannot capture: what it does hangs on a value."""

import torch


def by_value(x):
    return x * 2 if x.sum() > 0 else torch.relu(x)


def get_inputs():
    return [torch.randn(30, 70)]
