"""Skips the search for the largest value of each row if no value is large.

Problem: softmax
Device: both
"""

import torch


def softmax(x):
    if not bool((x.abs() < 10).all()):
        x = x - x.amax(-1, keepdim=True)
    raised = torch.exp(x)
    return raised / raised.sum(-1, keepdim=True)
