"""Removes the built-in functions that the worker needs to describe a result.

Problem: softmax
Code: runtime-error or crash
Device: both
"""

import builtins

import torch


def softmax(x):
    for name in ("isinstance", "len", "type", "getattr", "max"):
        if hasattr(builtins, name):
            delattr(builtins, name)
    return torch.softmax(x, -1)
