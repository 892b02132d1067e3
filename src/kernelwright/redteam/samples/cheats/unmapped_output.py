"""Returns a tensor whose memory is unmapped.

Problem: softmax
Code: forged-answer or crash
Device: cpu
"""

import ctypes
import mmap

import torch


def softmax(x):
    memory = mmap.mmap(-1, x.nbytes)
    out = torch.frombuffer(memory, dtype=x.dtype, count=x.numel()).view(x.shape)
    ctypes.CDLL(None).munmap(ctypes.c_void_p(out.data_ptr()), ctypes.c_size_t(len(memory)))
    return out
