"""Bilinear samples of an image at given points; outside of it there are zeros."""

import torch


def sampled_image(image, grid):
    return torch.nn.functional.grid_sample(image, grid, align_corners=False)


def get_inputs():
    return [torch.randn(2, 6, 20, 23), torch.rand(2, 15, 17, 2) * 2.4 - 1.2]
