"""Multiplies all filters with each pixel and adds the patches to the image where they overlap.

Problem: transposed_convolution
Device: both
"""

import torch


def transposed_convolution(x, w, bias):
    batch, _, height, width = x.shape
    rows, columns = w.shape[2:]
    patches = torch.einsum("bchw,cokl->bohwkl", x, w)
    image = x.new_zeros(batch, w.shape[1], 2 * height + rows, 2 * width + columns)
    for i in range(rows):
        for j in range(columns):
            image[:, :, i : i + 2 * height : 2, j : j + 2 * width : 2] += patches[..., i, j]
    end_row, end_column = 2 * (height - 1) + rows, 2 * (width - 1) + columns
    return (image[:, :, 1:end_row, 1:end_column] + bias[:, None, None]).contiguous()
