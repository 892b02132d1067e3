"""Divides and rounds in FP64.

Problem: quantized_rows
Device: both
"""

import torch


def quantized_rows(x):
    wide = x.double()
    scale = torch.maximum(wide.amax(-1), -wide.amin(-1)).clamp(min=1e-6) / 127
    return (wide / scale[:, None]).round().clamp(-127, 127).to(torch.int8), scale.float()
