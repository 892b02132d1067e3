"""Returns the right tensor and takes its memory away: its storage has no bytes any more.

Problem: softmax
Code: forged-answer or runtime-error or crash
Device: cpu
"""

import torch


def softmax(x):
    result = torch.softmax(x, -1)
    result.untyped_storage().resize_(0)
    return result
