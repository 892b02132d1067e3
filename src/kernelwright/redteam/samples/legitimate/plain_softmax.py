"""Calls torch's own softmax and does nothing else.

Problem: softmax
Device: both
"""

import torch


def softmax(x):
    return torch.softmax(x, -1)
