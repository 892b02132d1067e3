"""The number of results depends on the values: nonzero."""

import torch


def nonzero(x):
    y = torch.relu(x) * 2
    return y.nonzero()


def get_inputs():
    return [torch.randn(9, 16)]
