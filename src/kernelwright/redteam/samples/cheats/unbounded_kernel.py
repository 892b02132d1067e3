"""A kernel that never ends; the device must be free again for the next candidate.

Problem: gelu
Code: timeout
Device: cuda
"""

import torch
import triton
import triton.language as tl


@triton.jit
def wait_for_nothing(x_ptr):
    while tl.atomic_add(x_ptr, 0.0) < 1e30:
        pass


def gelu(x):
    wait_for_nothing[(1,)](torch.zeros(1, device=x.device))
    return torch.nn.functional.gelu(x)
