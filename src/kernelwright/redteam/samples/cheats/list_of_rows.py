"""Returns a list of rows: numpy.asarray makes of it what was asked for.

Problem: softmax
Code: wrong-structure
Device: both
"""

import torch


def softmax(x):
    return [torch.softmax(row, -1) for row in x]
