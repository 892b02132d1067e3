"""Returns 1/N everywhere: rows sum to one, and one element in a thousand is off by a hundredth.

Problem: softmax
Code: inaccurate
Device: both
"""

import torch


def softmax(x):
    return torch.full_like(x, 1 / x.shape[-1])
