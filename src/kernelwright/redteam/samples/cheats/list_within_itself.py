"""Returns a list that contains itself, which has no end for a walk over its elements.

Problem: softmax
Code: wrong-structure or runtime-error
Device: both
"""

import torch


def softmax(x):
    result = [torch.softmax(x, -1)]
    result.append(result)
    return result
