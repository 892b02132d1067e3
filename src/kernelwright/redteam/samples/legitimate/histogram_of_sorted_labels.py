"""Sorts the weights by their labels and sums each run of equal labels on its own.

Problem: weighted_histogram
Device: both
"""

import torch


def weighted_histogram(labels, weights):
    counts = torch.bincount(labels, minlength=64)
    runs = weights[labels.argsort()].split(counts.tolist())
    return torch.stack([run.sum() for run in runs])
