"""Counts how many elements of the row are smaller, or equal and further to the left.

Problem: ranks
Device: both
"""

import torch


def ranks(x):
    this, other = x[..., :, None], x[..., None, :]
    place = torch.arange(x.shape[-1], device=x.device)
    before = (other < this) | ((this != this) & (other == other))
    equal = (other == this) | ((this != this) & (other != other))
    return (before | (equal & (place < place[:, None]))).sum(-1)
