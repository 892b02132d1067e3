"""Results that are views of an input."""

import torch


def view_of_input(x):
    return x.transpose(0, 1), x[1:, ::2], x.reshape(-1) * 2


def get_inputs():
    return [torch.randn(9, 16)]
