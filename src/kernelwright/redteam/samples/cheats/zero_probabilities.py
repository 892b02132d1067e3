"""Returns zeros: of 1,531 probabilities in a row all but one or two are within a hundredth of zero.

Problem: softmax
Code: inaccurate
Device: both
"""

import torch


def softmax(x):
    return torch.zeros_like(x)
