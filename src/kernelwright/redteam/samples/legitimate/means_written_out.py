"""Writes the mean of each column to every row.

Problem: expanded_mean
Device: both
"""


def expanded_mean(x):
    mean = x.double().mean(0)
    return mean.repeat(len(x), 1).float(), (x - mean).float()
