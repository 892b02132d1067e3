"""So small that calling is all there is to it: a few operators over 64 numbers."""

import torch


def tiny(x, y):
    return (x * y).tanh() + x


def get_inputs():
    return [torch.randn(64), torch.randn(64)]
