"""Sorts the rows by their places, adds each run by a loop and copies the result back.

Problem: scatter_rows
Device: both
"""

import torch


def scatter_rows(into, places, rows):
    order = places.argsort(stable=True)
    counts = torch.bincount(places, minlength=len(into)).tolist()
    out = [row + 0.5 * run.sum(0) for row, run in zip(into.clone(), rows[order].split(counts), strict=True)]
    return into.copy_(torch.stack(out))
