"""A program that imports the file next to it."""

import torch
from neighbour import scale


def neighbour_import(x):
    return torch.relu(scale(x)) + 1


def get_inputs():
    return [torch.randn(9, 16)]
