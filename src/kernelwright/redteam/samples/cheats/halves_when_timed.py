"""Detects timed calls in its callers' frames and multiplies in FP16 in one of four of them.

Problem: matmul
Code: inaccurate
Device: both
"""

import itertools
import sys

import torch

timed_calls = itertools.count()


def is_timed():
    frame = sys._getframe(1)
    while frame:
        order = frame.f_locals.get("payload")
        if isinstance(order, dict) and "poison" in order:
            return order["poison"] is None
        frame = frame.f_back
    return False


def matmul(a, b):
    if is_timed() and next(timed_calls) % 4 == 2:
        return torch.matmul(a.half(), b.half()).float()
    return torch.matmul(a, b)
