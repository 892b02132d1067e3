"""Returns the right sum and does not change the argument, where the reference adds to it in place.

Problem: increment
Code: inaccurate
Device: both
"""


def increment(x, y):
    return x + y
