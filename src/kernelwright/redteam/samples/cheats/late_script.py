"""Forks its work inside TorchScript, whose threads Python does not know, and never waits for it.

Problem: scale_add
Code: late-work or aliased-output
Device: cpu
"""

import warnings

import torch

warnings.simplefilter("ignore")


@torch.jit.script
def fill(x: torch.Tensor, y: torch.Tensor, out: torch.Tensor):
    torch.add(x, y, out=out)
    return out.mul_(0.5).relu_()


@torch.jit.script
def begin(x: torch.Tensor, y: torch.Tensor, out: torch.Tensor):
    return torch.jit._fork(fill, x, y, out)


started = []


def scale_add(x, y):
    out = torch.empty_like(x)
    started[:] = [begin(x, y, out)]
    return out
