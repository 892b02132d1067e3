"""Imports the judge's own rules, changes them so that nothing is ever wrong, and returns zeros.

Problem: gelu
Code: inaccurate
Device: both
"""

import torch

from kernelwright.verification.accuracy import budget, comparison

for module in (budget, comparison):
    for name, value in list(vars(module).items()):
        if callable(value) and getattr(value, "__module__", "") == module.__name__ and not isinstance(value, type):
            setattr(module, name, lambda *args, **kwargs: (None, None))


def gelu(x):
    return torch.zeros_like(x)
