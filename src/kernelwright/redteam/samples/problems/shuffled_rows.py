"""The rows of a matrix in a random order."""

import torch


def shuffled_rows(x):
    return x[torch.randperm(len(x), device=x.device)]


def get_inputs():
    return [torch.randn(60, 33)]
