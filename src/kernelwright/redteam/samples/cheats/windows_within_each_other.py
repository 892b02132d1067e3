"""Returns overlapping windows as a view of the padded rows: elements of several windows are at one address.

Problem: copied_windows
Code: aliased-output
Device: both
"""

import torch


def copied_windows(x):
    return torch.nn.functional.pad(x, (5, 9)).unfold(-1, 16, 4)
