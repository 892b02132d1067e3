"""A while loop whose length depends on the values."""

import torch


def loop_until_converged(x):
    y = x
    while (y * y - x).abs().max() > 1e-4:
        y = (y + x / y) * 0.5
    return y * 2


def get_inputs():
    return [torch.rand(9, 16) + 0.5]
