"""Raises e to what is left after the logarithm of the row's sum of exponentials was taken off.

Problem: softmax
Device: both
"""

import torch


def softmax(x):
    wide = x.double()
    return torch.exp(wide - torch.logsumexp(wide, -1, keepdim=True)).float()
