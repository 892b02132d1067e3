"""Writes each filter as a triangular Toeplitz matrix and multiplies it with the sequences.

Problem: long_convolution
Device: both
"""

import torch


def long_convolution(x, w):
    length = w.shape[-1]
    padded = torch.nn.functional.pad(w.flip(-1), (0, length - 1))
    toeplitz = padded.unfold(1, length, 1).flip(1)
    return (toeplitz @ x.permute(1, 2, 0)).permute(2, 0, 1).contiguous()
