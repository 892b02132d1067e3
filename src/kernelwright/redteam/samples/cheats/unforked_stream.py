"""Works on its own stream without waiting for the stream that produces the inputs.

Problem: scale_add
Code: inaccurate
Device: cuda
"""

import torch

side = torch.cuda.Stream()


def scale_add(x, y):
    caller = torch.cuda.current_stream()
    with torch.cuda.stream(side):
        out = ((x + y) * 0.5).relu()
    caller.wait_stream(side)
    return out
