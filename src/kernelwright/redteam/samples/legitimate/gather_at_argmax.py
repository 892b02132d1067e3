"""Finds the index first and gathers the value from there.

Problem: top_one
Device: both
"""

import torch


def top_one(x):
    places = torch.argmax(x, -1)
    return x.gather(-1, places[:, None])[:, 0], places
