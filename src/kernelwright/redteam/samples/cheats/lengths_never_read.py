"""Takes every sequence for a full one.

Problem: padded_sum
Code: inaccurate
Device: both
"""


def padded_sum(x, lengths):
    return x.sum(1)
