"""Copies its input to the CPU, computes there and copies the result back.

Problem: gelu
Device: cuda
"""

import torch


def gelu(x):
    return torch.nn.functional.gelu(x.cpu().double()).float().to(x.device)
