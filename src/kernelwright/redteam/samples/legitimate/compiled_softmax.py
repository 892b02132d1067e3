"""A function that torch.compile compiles in its first call, which takes seconds.

Problem: softmax
Device: both
"""

import torch


@torch.compile(dynamic=False)
def normalized(x):
    raised = torch.exp(x - x.amax(-1, keepdim=True))
    return raised / raised.sum(-1, keepdim=True)


def softmax(x):
    return normalized(x)
