"""Reads from address zero.

Problem: gelu
Code: crash
Device: cpu
"""

import ctypes


def gelu(x):
    return x * len(ctypes.string_at(0))
