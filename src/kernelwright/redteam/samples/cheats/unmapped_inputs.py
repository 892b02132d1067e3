"""Unmaps the memory of its input before it returns: the judge cannot write the next one.

Problem: softmax
Code: crash or forged-answer or input-mutated or runtime-error
Device: cpu
"""

import ctypes

import torch

PAGE = 4096


def softmax(x):
    out = torch.softmax(x, -1)
    start = -(-x.data_ptr() // PAGE) * PAGE
    ctypes.CDLL(None).munmap(ctypes.c_void_p(start), ctypes.c_size_t((x.data_ptr() + x.nbytes - start) // PAGE * PAGE))
    return out
