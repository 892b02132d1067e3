"""Appends the bias to the weights as a column and a one to every row, so that a single product is enough.

Problem: linear_relu
Device: both
"""

import torch


def linear_relu(x, linear_weight, linear_bias):
    rows = torch.cat([x, torch.ones(len(x), 1, device=x.device)], 1)
    weights = torch.cat([linear_weight, linear_bias[:, None]], 1)
    return (rows @ weights.T).clamp(min=0)
