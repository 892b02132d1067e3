"""torch.func inside: vmap of a function over rows."""

import torch


def vmapped(x, y):
    return torch.func.vmap(lambda row: torch.softmax(row * y, -1) + 1)(x)


def get_inputs():
    return [torch.randn(9, 16), torch.randn(16)]
