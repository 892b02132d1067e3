"""A filter in the frequency domain."""

import torch


def fft(x, weight):
    return torch.fft.irfft(torch.fft.rfft(x) * weight, n=x.shape[-1]) * 2 + 1


def get_inputs():
    return [torch.randn(9, 16), torch.randn(9)]
