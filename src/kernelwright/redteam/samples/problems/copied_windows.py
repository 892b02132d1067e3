"""Overlapping windows of padded rows, each in memory of its own."""

import torch


def copied_windows(x):
    return torch.nn.functional.pad(x, (5, 9)).unfold(-1, 16, 4).contiguous()


def get_inputs():
    return [torch.randn(40, 410)]
