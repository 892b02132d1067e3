"""Packs the weights into tiles in every call, since they may have changed, and multiplies tile by tile.

Problem: linear_relu
Device: both
"""

import torch


def linear_relu(x, linear_weight, linear_bias):
    tiles = torch.nn.functional.pad(linear_weight, (0, 0, 0, -len(linear_weight) % 32))
    tiles = tiles.view(-1, 32, x.shape[1]).transpose(1, 2).contiguous()
    product = (x @ tiles).transpose(0, 1).flatten(1)
    return torch.relu(product[:, : len(linear_weight)] + linear_bias)
