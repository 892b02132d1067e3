"""Allocates more than all memory of the device.

Problem: gelu
Code: out-of-memory
Device: cuda
"""

import torch


def gelu(x):
    held = [torch.empty(1 << 34, dtype=torch.uint8, device=x.device) for _ in range(64)]
    return torch.nn.functional.gelu(x) + 0 * len(held)
