"""Is not Python: a bracket is never closed.

Problem: gelu
Code: runtime-error or compile-error
Device: both
"""

import torch


def gelu(x):
    return torch.nn.functional.gelu(x
