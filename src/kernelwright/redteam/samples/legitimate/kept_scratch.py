"""Keeps one buffer for partial products between calls; the output is new in every call.

Problem: matmul
Device: both
"""

import torch

scratch = {}


def matmul(a, b):
    key = len(a), b.shape[1], a.device
    if key not in scratch:
        scratch[key] = torch.empty(len(a), b.shape[1], device=a.device)
    part, out = scratch[key], torch.zeros(len(a), b.shape[1], device=a.device)
    for k in range(0, len(b), 200):
        out += torch.mm(a[:, k : k + 200], b[k : k + 200], out=part)
    return out
