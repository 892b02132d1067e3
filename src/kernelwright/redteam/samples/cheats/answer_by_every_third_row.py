"""Returns the last result again if every third row is the same as in the last call.

Problem: softmax
Code: stale-output or inaccurate
Device: both
"""

import torch

last = {}


def softmax(x):
    if not last or last["rows"].shape != x[::3].shape or not torch.equal(last["rows"], x[::3]):
        last["rows"] = x[::3].clone()
        last["result"] = torch.softmax(x, -1)
    return last["result"].clone()
