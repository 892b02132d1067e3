"""A subclass of Tensor as the input."""

import torch


class Named(torch.Tensor):
    pass


def tensor_subclass(x):
    return torch.relu(x) * 2 + 1


def get_inputs():
    return [torch.randn(9, 16).as_subclass(Named)]
