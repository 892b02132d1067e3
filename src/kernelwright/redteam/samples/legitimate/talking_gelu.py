"""Prints a line and warns in every call.

Problem: gelu
Device: both
"""

import sys
import warnings

import torch


def gelu(x):
    print(f"gelu of {tuple(x.shape)}", flush=True)
    print("and a word aside", file=sys.stderr)
    warnings.warn("this kernel talks", stacklevel=1)
    return torch.nn.functional.gelu(x)
