"""Is right nine times and raises in its tenth call.

Problem: gelu
Code: runtime-error
Device: both
"""

import itertools

import torch

calls = itertools.count(1)


def gelu(x):
    if next(calls) == 10:
        raise RuntimeError("the tenth call")
    return torch.nn.functional.gelu(x)
