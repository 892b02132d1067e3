"""Convolves rows and columns by real FFTs of a size that has small factors.

Problem: convolution
Device: both
"""

import torch

SIZE = (32, 36)


def convolution(x, w):
    height, width = x.shape[2:]
    if height + 2 > SIZE[0] or width + 2 > SIZE[1]:
        return torch.nn.functional.conv2d(x, w, padding=1)
    images = torch.fft.rfft2(x, s=SIZE).flatten(2).permute(2, 0, 1)
    filters = torch.fft.rfft2(w.flip(2, 3), s=SIZE).flatten(2).permute(2, 1, 0)
    products = (images @ filters).permute(1, 2, 0).unflatten(2, (SIZE[0], SIZE[1] // 2 + 1))
    out = torch.fft.irfft2(products, s=SIZE)
    return out[:, :, 1 : height + 1, 1 : width + 1].contiguous()
