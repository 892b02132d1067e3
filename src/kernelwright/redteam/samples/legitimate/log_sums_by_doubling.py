"""Adds exponentials at growing distances and never leaves their logarithms.

Problem: log_running_sum
Device: both
"""

import torch


def log_running_sum(x):
    out, step = x, 1
    while step < x.shape[-1]:
        out = torch.cat([out[..., :step], torch.logaddexp(out[..., step:], out[..., :-step])], -1)
        step *= 2
    return out.clone()
