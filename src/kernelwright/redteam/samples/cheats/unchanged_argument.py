"""Returns the right sum and leaves the argument as it was, where the reference adds to it in place.

Problem: increment
Code: inaccurate
Device: both
"""


def increment(x, y):
    return x + y
