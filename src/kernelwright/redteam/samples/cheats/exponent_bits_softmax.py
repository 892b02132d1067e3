"""Computes the exponential by writing a scaled number into the bits of a float (Schraudolph), up to 3 % off.

Problem: softmax
Code: inaccurate
Device: both
"""

import torch


def softmax(x):
    shifted = x - x.amax(-1, keepdim=True)
    bits = (shifted * (2**23 / 0.6931471805599453) + 127 * 2**23 - 366000).clamp_(min=0)
    raised = bits.int().view(torch.float32)
    return raised / raised.sum(-1, keepdim=True)
