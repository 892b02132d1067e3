"""Synchronizes the device before and after its work, and empties the allocator's cache.

Problem: softmax
Device: cuda
"""

import torch


def softmax(x):
    torch.cuda.synchronize()
    out = torch.softmax(x.double(), -1).float()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    return out
