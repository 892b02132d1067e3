"""Euclidean distances of all pairs of points."""

import torch


def distances(x, y):
    return torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist")


def get_inputs():
    return [torch.randn(70, 20), torch.randn(90, 20)]
