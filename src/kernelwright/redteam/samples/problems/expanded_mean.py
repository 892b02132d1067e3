"""Column means, expanded to the shape of the input without copies, and the rows without them."""

import torch


def expanded_mean(x):
    mean = x.mean(0, keepdim=True).expand_as(x)
    return mean, x - mean


def get_inputs():
    return [torch.randn(40, 130)]
