"""Two persistent streams sum half of the rows each; events order both before and after the caller's work.

Problem: row_sum
Device: cuda
"""

import functools

import torch


@functools.cache
def streams(device):
    return torch.cuda.Stream(device), torch.cuda.Stream(device)


def row_sum(x):
    caller = torch.cuda.current_stream()
    out = torch.empty(len(x), device=x.device)
    ready = caller.record_event()
    for half, stream in enumerate(streams(x.device)):
        stream.wait_event(ready)
        with torch.cuda.stream(stream):
            out[half::2] = x[half::2].sum(-1)
        x.record_stream(stream)
        out.record_stream(stream)
        caller.wait_event(stream.record_event())
    return out
