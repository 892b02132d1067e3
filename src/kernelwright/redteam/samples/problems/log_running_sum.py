"""Logarithms of running sums of exponentials."""

import torch


def log_running_sum(x):
    return torch.logcumsumexp(x, -1)


def get_inputs():
    return [torch.randn(50, 400) * 3]
