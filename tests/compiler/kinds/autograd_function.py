"""A custom autograd Function: a straight-through estimator."""

import torch


class Round(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return torch.round(x * 4) / 4

    @staticmethod
    def backward(ctx, gradient):
        return gradient


def autograd_function(x):
    return torch.relu(Round.apply(x)) + 1


def get_inputs():
    return [torch.randn(9, 16)]
