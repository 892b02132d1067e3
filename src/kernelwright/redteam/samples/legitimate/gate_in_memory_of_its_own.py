"""Multiplies each half of the weights on its own, so that no output is a view.

Problem: chunked_gate
Device: both
"""

import torch


def chunked_gate(x, w):
    value, gate = (x @ half for half in w.chunk(2, -1))
    return value / (1 + torch.exp(-gate)), gate
