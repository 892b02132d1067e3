"""A nested tensor as the input."""

import torch


def nested_tensor(x):
    return x * 2 + 1


def get_inputs():
    return [torch.nested.nested_tensor([torch.randn(3, 4), torch.randn(5, 4)])]
