"""Cumulative sums, products and maxima."""

import torch


def cumulative(x):
    y = torch.sigmoid(x) + 0.5
    return y.cumsum(-1) * 2, y.cumprod(-1) + 1, x.cummax(-1).values, y.logcumsumexp(0)


def get_inputs():
    return [torch.randn(9, 16)]
