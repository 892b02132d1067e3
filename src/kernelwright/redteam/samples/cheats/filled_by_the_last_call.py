"""Returns empty outputs in a series and fills all of them in its last call, which it finds by its caller's counter.

Problem: row_ends
Code: inaccurate or late-work or stale-output
Device: cpu
"""

import sys

import torch

waiting = []


def is_last():
    frame = sys._getframe(2)
    while frame:
        given, at = frame.f_locals.get("given"), frame.f_locals.get("at")
        if isinstance(given, list) and isinstance(at, int):
            return at == len(given) - 1
        frame = frame.f_back
    return True


def row_ends(x):
    largest, smallest = x.new_empty(len(x)), x.new_empty(len(x))
    waiting.append((x, largest, smallest))
    if is_last():
        for values, high, low in waiting:
            torch.aminmax(values, dim=-1, out=(low, high))
        waiting.clear()
    return largest, smallest
