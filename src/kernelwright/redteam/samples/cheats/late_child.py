"""Copies its inputs to a child process and returns; the child multiplies into shared memory later.

Problem: matmul
Code: late-work or aliased-output
Device: cpu
"""

import mmap
import os

import numpy as np
import torch

SHAPES = (129, 517), (517, 95), (129, 95)


def shared(shape):
    return torch.frombuffer(mmap.mmap(-1, 4 * shape[0] * shape[1]), dtype=torch.float32).view(shape)


left, right, out = map(shared, SHAPES)
reading, writing = os.pipe()
if os.fork() == 0:
    os.close(writing)
    while os.read(reading, 1):
        np.matmul(left.numpy(), right.numpy(), out=out.numpy())
    os._exit(0)


def matmul(a, b):
    left.copy_(a)
    right.copy_(b)
    os.write(writing, b"!")
    return out
