"""A kernel that writes to an unmapped address; only its own CUDA context may be lost.

Problem: gelu
Code: runtime-error or crash
Device: cuda
"""

import torch
import triton
import triton.language as tl


@triton.jit
def write_far_away(x_ptr, far):
    tl.store(x_ptr + far, 1.0)


def gelu(x):
    write_far_away[(1,)](x, 1 << 44)
    return torch.nn.functional.gelu(x)
