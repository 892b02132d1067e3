"""Real and imaginary parts of the spectra of rows: two views of one complex result."""

import torch


def spectrum_parts(x):
    spectrum = torch.fft.rfft(x)
    return spectrum.real, spectrum.imag


def get_inputs():
    return [torch.randn(50, 180)]
