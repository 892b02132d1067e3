"""Shuffles places by swaps with a random earlier one (Fisher and Yates), by Python's generator.

Problem: shuffled_rows
Device: both
"""

import random


def shuffled_rows(x):
    order = list(range(len(x)))
    for at in range(len(order) - 1, 0, -1):
        other = random.randrange(at + 1)
        order[at], order[other] = order[other], order[at]
    return x[order]
