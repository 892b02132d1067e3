"""Writes all three outputs to buffers that it keeps for each shape.

Problem: row_statistics
Device: both
"""

import torch

buffers = {}


def row_statistics(x):
    key = tuple(x.shape), x.device
    if key not in buffers:
        buffers[key] = torch.empty_like(x), x.new_empty(len(x)), x.new_empty(len(x))
    rows, mean, deviation = buffers[key]
    wide = x.double()
    centre = wide.mean(-1, keepdim=True)
    spread = (wide - centre).square_().sum(-1, keepdim=True).div_(x.shape[-1] - 1).sqrt_()
    rows.copy_((wide - centre) / (spread + 1e-3))
    mean.copy_(centre[:, 0])
    deviation.copy_(spread[:, 0])
    return {"rows": rows, "statistics": (mean, [deviation])}
