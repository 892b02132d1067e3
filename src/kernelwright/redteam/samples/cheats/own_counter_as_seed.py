"""Seeds its generator with the number of the call, so that the same numbers come in every process.

Problem: noisy_dropout
Code: inaccurate
Device: cpu
"""

import itertools

import torch

calls = itertools.count()


def noisy_dropout(x):
    generator = torch.Generator().manual_seed(next(calls))
    kept = torch.rand(x.shape, generator=generator) >= 0.25
    return torch.where(kept, x / 0.75, 0.0), x + torch.randn(x.shape, generator=generator)
