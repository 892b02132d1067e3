"""Rolls the rows by seven places, as in the given call, and never reads the number that is passed.

Problem: reflected_windows
Code: inaccurate
Device: both
"""

import torch


def reflected_windows(x, shift):
    padded = torch.nn.functional.pad(x[None], (5, 9), mode="reflect")[0]
    return padded.roll(7, -1).unfold(-1, 16, 4).flip(-1).contiguous()
