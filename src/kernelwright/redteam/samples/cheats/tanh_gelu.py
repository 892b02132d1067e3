"""Takes the form of GELU with tanh for the one with the error function, 5e-4 off at worst.

Problem: gelu
Code: inaccurate
Device: both
"""

import torch


def gelu(x):
    return torch.nn.functional.gelu(x, approximate="tanh")
