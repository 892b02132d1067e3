"""One row, repeated 256 times in memory of its own."""

import torch


def repeated_row(x):
    return x.repeat(256, 1)


def get_inputs():
    return [torch.randn(4096)]
