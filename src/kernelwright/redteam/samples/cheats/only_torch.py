"""Calls torch for all of the work.

Problem: softmax
Code: not-own-kernels
Policy: own-kernels
Device: both
"""

import torch


def softmax(x):
    return torch.softmax(x, -1)
