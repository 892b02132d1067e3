"""Works on its own stream, which waits for the caller's stream first; the caller's stream waits for it afterwards.

Problem: gelu
Device: cuda
"""

import torch


def gelu(x):
    caller, side = torch.cuda.current_stream(), torch.cuda.Stream()
    side.wait_stream(caller)
    with torch.cuda.stream(side):
        out = torch.nn.functional.gelu(x)
    caller.wait_stream(side)
    x.record_stream(side)
    out.record_stream(caller)
    return out
