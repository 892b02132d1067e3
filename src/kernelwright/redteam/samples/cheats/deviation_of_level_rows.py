"""Bounds the deviation of a row by 1e-2 from below, which changes only rows of nearly equal numbers.

Problem: row_statistics
Code: inaccurate
Device: both
"""

import torch


def row_statistics(x):
    deviation, mean = torch.std_mean(x, -1, keepdim=True)
    deviation = deviation.clamp(min=1e-2)
    return {"rows": (x - mean) / (deviation + 1e-3), "statistics": (mean[:, 0], [deviation[:, 0]])}
