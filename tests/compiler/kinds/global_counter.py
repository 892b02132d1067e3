"""A counter of calls in a global variable, which does not change the results."""

import torch

calls = 0


def global_counter(x):
    global calls
    calls += 1
    return torch.relu(x) * 2 + 1


def get_inputs():
    return [torch.randn(9, 16)]
