"""Maps an unlinked file of the working folder and returns a tensor in it.

Problem: gelu
Device: cpu
"""

import mmap
import tempfile

import torch


def gelu(x):
    with tempfile.TemporaryFile() as file:
        file.truncate(x.nbytes)
        mapped = mmap.mmap(file.fileno(), x.nbytes)
    out = torch.frombuffer(mapped, dtype=x.dtype).view(x.shape)
    out.copy_(torch.nn.functional.gelu(x))
    return out
