"""A program that fails for its own inputs."""

import torch


def raises(x):
    return x @ torch.ones(3, 3)


def get_inputs():
    return [torch.randn(9, 16)]
