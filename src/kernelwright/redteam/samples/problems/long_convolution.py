"""A causal convolution of each channel with a filter as long as the sequence."""

import torch


def long_convolution(x, w):
    length = x.shape[-1]
    return torch.nn.functional.conv1d(torch.nn.functional.pad(x, (length - 1, 0)), w.flip(-1)[:, None], groups=len(w))


def get_inputs():
    return [torch.randn(3, 10, 700), torch.randn(10, 700) / 20]
