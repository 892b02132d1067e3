"""Bilinear interpolation of images to two and a half times their size."""

import torch


def upsample(x):
    return torch.nn.functional.interpolate(x, size=(45, 60), mode="bilinear", align_corners=False)


def get_inputs():
    return [torch.randn(2, 5, 18, 24)]
