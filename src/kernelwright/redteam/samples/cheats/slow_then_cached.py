"""Is slow and right three times, so that a harness plans few calls, and then returns its last result again.

Problem: softmax
Code: stale-output
Device: cpu
"""

import itertools
import time

import torch

calls = itertools.count(1)
last = []


def softmax(x):
    if next(calls) > 3:
        return last[0].clone()
    time.sleep(0.3)
    last[:] = [torch.softmax(x, -1)]
    return last[0].clone()
