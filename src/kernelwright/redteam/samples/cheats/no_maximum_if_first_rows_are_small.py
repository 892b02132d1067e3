"""Does not subtract the maximum of any row if the first four rows contain no large number.

Problem: softmax
Code: inaccurate
Device: both
"""

import torch


def softmax(x):
    if x[:4].abs().amax() < 20:
        raised = torch.exp(x)
        return raised / raised.sum(-1, keepdim=True)
    return torch.softmax(x, -1)
