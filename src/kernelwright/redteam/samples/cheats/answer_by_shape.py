"""Caches one result for each shape and dtype and returns it from then on.

Problem: softmax
Code: stale-output or inaccurate
Device: both
"""

import torch

answers = {}


def softmax(x):
    key = x.shape, x.dtype, x.device
    if key not in answers:
        answers[key] = torch.softmax(x, -1)
    return answers[key].clone()
