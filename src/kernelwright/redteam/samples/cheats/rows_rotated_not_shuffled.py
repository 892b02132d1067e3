"""Rotates the rows by a random distance, where the reference puts them in a random order.

Problem: shuffled_rows
Code: inaccurate
Device: both
"""

import torch


def shuffled_rows(x):
    return x.roll(int(torch.randint(0, len(x), ())), 0)
