"""A product of matrices of 8-bit integers with 32-bit sums."""

import torch


def byte_product(a, b):
    return a.int() @ b.int()


def get_inputs():
    a = torch.randint(-128, 128, (60, 500), dtype=torch.int8)
    return [a, torch.randint(-128, 128, (500, 70), dtype=torch.int8)]
