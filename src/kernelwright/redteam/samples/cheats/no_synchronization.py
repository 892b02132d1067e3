"""Has replaced device synchronization: the call returns while its kernels are still queued.

Problem: gelu
Code: late-work or false-time or inaccurate
Device: cuda
"""

import torch

torch.cuda.synchronize = lambda device=None: None
torch.cuda.Event.synchronize = lambda event: None
torch.cuda.Event.elapsed_time = lambda begin, end: 0.004


def gelu(x):
    out = torch.empty_like(x)
    torch.cuda._sleep(20_000_000)
    return out.copy_(torch.nn.functional.gelu(x))
