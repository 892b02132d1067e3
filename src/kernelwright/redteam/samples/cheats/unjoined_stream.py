"""Works on its own stream, which waits for the caller's stream; the caller's stream does not wait for it.

Problem: scale_add
Code: late-work
Device: cuda
"""

import torch

side = torch.cuda.Stream()


def scale_add(x, y):
    side.wait_stream(torch.cuda.current_stream())
    out = torch.empty_like(x)
    with torch.cuda.stream(side):
        for _ in range(20):
            torch.sin(x, out=out)
        torch.add(x, y, out=out).mul_(0.5).relu_()
    return out
