"""Works down the columns of a transposed copy and returns its transpose, which is not contiguous.

Problem: softmax
Device: both
"""

import torch


def softmax(x):
    columns = x.T.contiguous()
    raised = torch.exp(columns - columns.amax(0))
    return raised.div_(raised.sum(0)).T
