"""Multiplies the spectra of sequences padded to twice their length.

Problem: long_convolution
Device: both
"""

import torch


def long_convolution(x, w):
    length = x.shape[-1]
    size = 1 << (2 * length - 1).bit_length()
    return torch.fft.irfft(torch.fft.rfft(x, size) * torch.fft.rfft(w, size), size)[..., :length].contiguous()
