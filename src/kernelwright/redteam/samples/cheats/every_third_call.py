"""Computes in one call of three, starting with the first, and returns the last result in the two others.

Problem: matmul
Code: stale-output
Device: both
"""

import itertools

import torch

calls = itertools.count()
last = []


def matmul(a, b):
    if next(calls) % 3 == 0:
        last[:] = [torch.matmul(a, b)]
    return last[0].clone()
