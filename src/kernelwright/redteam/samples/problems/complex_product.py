"""A product of complex matrices."""

import torch


def complex_product(a, b):
    return a @ b


def get_inputs():
    return [torch.randn(50, 130, dtype=torch.complex64), torch.randn(130, 70, dtype=torch.complex64)]
