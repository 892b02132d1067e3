"""Recognises its input by mean and deviation of a part, rounded so that the order of summation does not matter.

Problem: softmax
Code: stale-output or inaccurate
Device: both
"""

import torch

answers = {}


def softmax(x):
    part = x[::8, ::8]
    key = round(part.mean().item(), 1), round(part.std().item(), 1), x.shape
    if key not in answers:
        answers[key] = torch.softmax(x, -1)
    return answers[key]
