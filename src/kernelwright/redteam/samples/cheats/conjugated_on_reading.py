"""Returns a conjugated view of its input, whose signs change only when it is read.

Problem: conjugate
Code: aliased-output
Device: both
"""

import torch


def conjugate(x):
    return torch.conj(x)
