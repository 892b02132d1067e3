"""Returns at once and lets a thread fill the output afterwards.

Problem: scale_add
Code: late-work or aliased-output
Device: cpu
"""

import _thread

import torch


def scale_add(x, y):
    out = torch.empty_like(x)
    _thread.start_new_thread(lambda: torch.add(x, y, out=out).mul_(0.5).relu_(), ())
    return out
