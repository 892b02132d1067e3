"""Splits the sequence into even and odd places until one number is left (Cooley and Tukey), in complex64.

Problem: fourier
Device: both
"""

import math

import torch


def fourier(x):
    if x.shape[-1] % 2:
        return torch.fft.fft(x)
    out = x.unsqueeze(-2)
    while out.shape[-1] % 2 == 0:
        middle = out.shape[-1] // 2
        even, odd = out[..., :middle], out[..., middle:]
        count = out.shape[-2]
        angle = torch.arange(count, device=x.device, dtype=torch.float64) * (-math.pi / count)
        odd = odd * torch.polar(torch.ones_like(angle), angle).to(x.dtype)[:, None]
        out = torch.cat([even + odd, even - odd], -2)
    if out.shape[-1] > 1:
        return torch.fft.fft(x)
    return out.squeeze(-1)
