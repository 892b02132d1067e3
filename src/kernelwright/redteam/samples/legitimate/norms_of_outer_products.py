"""The gradients are outer products, whose lengths are products of lengths.

Problem: gradient_norms
Device: both
"""

import torch


def gradient_norms(x, y, w, v):
    x, y, w, v = x.double(), y.double(), w.double(), v.double()
    hidden = torch.tanh(x @ w)
    error = 2 * (hidden @ v - y)
    inner = (error @ v.T) * (1 - hidden) * (1 + hidden)
    squares = [each.square().sum(1) for each in (x, inner, hidden, error)]
    return (squares[0] * squares[1] + squares[2] * squares[3]).sqrt().float()
