"""Returns the right largest values, with their indices from the first call.

Problem: top_one
Code: stale-output or inaccurate
Device: both
"""

import torch

places = {}


def top_one(x):
    if x.shape not in places:
        places[x.shape] = x.argmax(-1)
    return torch.amax(x, -1), places[x.shape].clone()
