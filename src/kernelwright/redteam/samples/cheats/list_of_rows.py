"""Returns a list of rows, from which numpy.asarray makes the expected array.

Problem: softmax
Code: wrong-structure
Device: both
"""

import torch


def softmax(x):
    return [torch.softmax(row, -1) for row in x]
