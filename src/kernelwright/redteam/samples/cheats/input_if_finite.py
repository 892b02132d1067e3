"""Returns the input itself if none of its numbers has to be replaced.

Problem: finite_numbers
Code: aliased-output
Device: both
"""

import torch


def finite_numbers(x):
    return x if bool(x.isfinite().all()) else torch.nan_to_num(x)
