"""Caches results by the address of the input in steps of 16 MiB: an allocator reuses addresses.

Problem: gelu
Code: stale-output or inaccurate
Device: both
"""

import torch

answers = {}


def gelu(x):
    region = x.data_ptr() >> 24
    if region not in answers:
        answers[region] = torch.nn.functional.gelu(x)
    return answers[region]
