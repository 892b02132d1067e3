"""Computes on the host and returns before the copy to the device has started.

Problem: gelu
Code: late-work or wrong-device or inaccurate
Device: cuda
"""

import torch

side = torch.cuda.Stream()


def gelu(x):
    right = torch.nn.functional.gelu(x.cpu()).pin_memory()
    out = torch.empty_like(x)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.cuda._sleep(1_000_000)
        out.copy_(right, non_blocking=True)
    return out
