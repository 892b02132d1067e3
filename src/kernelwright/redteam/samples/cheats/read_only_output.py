"""Returns a tensor in memory that is protected from writes.

Problem: softmax
Code: aliased-output or forged-answer
Device: cpu
"""

import ctypes
import mmap

import torch


def softmax(x):
    memory = mmap.mmap(-1, x.nbytes)
    out = torch.frombuffer(memory, dtype=x.dtype, count=x.numel()).view(x.shape)
    torch.softmax(x, -1, out=out)
    ctypes.CDLL(None).mprotect(ctypes.c_void_p(out.data_ptr()), ctypes.c_size_t(len(memory)), 1)
    return out
