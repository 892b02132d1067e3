"""Computes in one call of three, the first among them, and gives the last answer in the two others.

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
