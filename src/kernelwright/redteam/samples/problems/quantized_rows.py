"""Rows as 8-bit integers with a scale for each row."""

import torch


def quantized_rows(x):
    scale = x.abs().amax(-1, keepdim=True).clamp(min=1e-6) / 127
    return (x / scale).round().clamp(-127, 127).to(torch.int8), scale[:, 0]


def get_inputs():
    return [torch.randn(60, 200)]
