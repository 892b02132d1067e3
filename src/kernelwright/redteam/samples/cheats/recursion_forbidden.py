"""Lowers Python's limit of recursion so far that the worker cannot call its own functions any more.

Problem: softmax
Code: runtime-error or crash
Device: both
"""

import sys

import torch


def softmax(x):
    depth, frame = 0, sys._getframe()
    while frame:
        depth, frame = depth + 1, frame.f_back
    sys.setrecursionlimit(depth + 4)
    return torch.softmax(x, -1)
