"""A function that closes over a module with parameters."""

import torch

torch.manual_seed(1)


def _make():
    layer = torch.nn.Linear(16, 8)
    return lambda x: torch.relu(layer(x)) * 2


_apply = _make()


def closure_over_module(x):
    return _apply(x) + 1


def get_inputs():
    return [torch.randn(9, 16)]
