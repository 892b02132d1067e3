"""Allocates memory in steps of 256 MB and writes to all of it, up to 12 GiB unless a limit stops it.

Problem: gelu
Code: out-of-memory
Device: cpu
"""

import torch


def gelu(x):
    hoard = [torch.ones(1 << 26) for _ in range(48)]
    return torch.nn.functional.gelu(x) * hoard[0][0]
