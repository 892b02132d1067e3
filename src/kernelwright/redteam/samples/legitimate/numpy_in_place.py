"""Adds through a NumPy view of the input's own memory.

Problem: increment
Device: cpu
"""

import numpy as np


def increment(x, y):
    into = x.numpy()
    np.add(into, y.numpy(), out=into)
    return x
