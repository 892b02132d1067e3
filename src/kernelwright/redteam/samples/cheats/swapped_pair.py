"""Returns the indices before the values, in a named tuple in which each name has the right value.

Problem: top_one
Code: wrong-dtype or wrong-structure
Device: both
"""

from typing import Any, NamedTuple

import torch


class Pair(NamedTuple):
    indices: Any
    values: Any


def top_one(x):
    values, indices = torch.max(x, -1)
    return Pair(indices, values)
