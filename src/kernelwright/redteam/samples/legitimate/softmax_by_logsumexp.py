"""The exponential of each value minus the logarithm of the row's sum of exponentials.

Problem: softmax
Device: both
"""

import torch


def softmax(x):
    wide = x.double()
    return torch.exp(wide - torch.logsumexp(wide, -1, keepdim=True)).float()
