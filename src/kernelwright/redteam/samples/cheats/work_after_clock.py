"""Returns an empty output and does the work when a profile function sees a clock being read.

Problem: scale_add
Code: false-time
Device: cpu
"""

import sys
import time

import torch

CLOCKS = time.perf_counter, time.perf_counter_ns, time.time, time.monotonic


def scale_add(x, y):
    out = torch.empty_like(x)

    def told(frame, event, what):
        if event == "c_return" and what in CLOCKS:
            sys.setprofile(None)
            out.copy_(torch.relu((x + y) * 0.5))

    sys.setprofile(told)
    return out
