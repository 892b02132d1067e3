"""Writes to two buffers in turn, so that the call after the next one overwrites an output.

Problem: softmax
Code: aliased-output
Device: both
"""

import torch

buffers = {}


def softmax(x):
    pair = buffers.setdefault(x.shape, [])
    if len(pair) < 2:
        pair.append(torch.empty_like(x))
    pair.reverse()
    return torch.softmax(x, -1, out=pair[0])
