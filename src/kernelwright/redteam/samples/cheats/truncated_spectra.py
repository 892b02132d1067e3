"""Convolves by FFT and drops the low 12 bits of both spectra, as an 11-bit complex product would.

Problem: convolution
Code: inaccurate
Device: both
"""

import torch


def rounded(spectrum):
    bits = torch.view_as_real(spectrum).contiguous().view(torch.int32)
    return torch.view_as_complex((bits & ~0xFFF).view(torch.float32))


def convolution(x, w):
    height, width = x.shape[2:]
    size = (height + 2, width + 2)
    padded = torch.nn.functional.pad(x, (1, 1, 1, 1))
    images, filters = rounded(torch.fft.rfft2(padded)), rounded(torch.fft.rfft2(w, s=size))
    out = torch.fft.irfft2(torch.einsum("nchw,ochw->nohw", images, filters.conj()), s=size)
    return out[:, :, :height, :width].contiguous()
