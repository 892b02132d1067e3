"""Lets the library round both matrices to TF32 first.

Problem: matmul
Code: inaccurate
Device: cuda
"""

import torch

torch.backends.cuda.matmul.allow_tf32 = True


def matmul(a, b):
    return a @ b
