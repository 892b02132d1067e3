"""Computes the first row and expands it to all the others, whose probabilities are as small.

Problem: softmax
Code: inaccurate
Device: both
"""

import torch


def softmax(x):
    return torch.softmax(x[:1], -1).expand(x.shape)
