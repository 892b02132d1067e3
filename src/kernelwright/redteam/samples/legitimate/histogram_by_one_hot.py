"""Compares every label with all 64 and multiplies the weights with the result, in blocks of 2048.

Problem: weighted_histogram
Device: both
"""

import torch


def weighted_histogram(labels, weights):
    out = torch.zeros(64, dtype=torch.float64, device=labels.device)
    every = torch.arange(64, device=labels.device)
    for label, weight in zip(labels.split(2048), weights.split(2048), strict=True):
        out += weight @ (label[:, None] == every).double()
    return out
