"""Allocates 200 MB of memory in every call, uses a little of it and frees all of it.

Problem: softmax
Device: cpu
"""

import torch


def softmax(x):
    scratch = torch.zeros(50_000_000)
    raised = scratch[: x.numel()].view(x.shape)
    torch.exp(x - x.amax(-1, keepdim=True), out=raised)
    return raised / raised.sum(-1, keepdim=True)
