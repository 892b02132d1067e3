"""Calls tanh of the C library, one number at a time.

Problem: tiny
Device: cpu
"""

import ctypes

import torch

tanhf = ctypes.CDLL("libm.so.6").tanhf
tanhf.argtypes, tanhf.restype = [ctypes.c_float], ctypes.c_float


def tiny(x, y):
    raised = [tanhf(product) for product in (x * y).tolist()]
    return torch.tensor(raised) + x
