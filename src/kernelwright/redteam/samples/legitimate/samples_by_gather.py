"""Gathers the four pixels around each point and weighs them, with coordinates in FP64.

Problem: sampled_image
Device: both
"""

import torch


def sampled_image(image, grid):
    batch, channels, height, width = image.shape
    x = ((grid[..., 0].double() + 1) * width - 1) / 2
    y = ((grid[..., 1].double() + 1) * height - 1) / 2
    left, top = x.floor(), y.floor()
    flat, out = image.flatten(2), 0
    for row, row_weight in ((top, top + 1 - y), (top + 1, y - top)):
        for column, column_weight in ((left, left + 1 - x), (left + 1, x - left)):
            inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
            unknown = row.isnan() | column.isnan()
            place = torch.where(inside, row * width + column, 0).long().flatten(1)[:, None]
            values = flat.gather(2, place.expand(batch, channels, -1)).view(batch, channels, *x.shape[1:])
            weight = torch.where(inside | unknown, row_weight * column_weight, 0)[:, None]
            out = out + torch.where(weight == 0, 0, values * weight)
    return out.to(image.dtype)
