"""Computes in inference mode, collects garbage and returns an inference tensor.

Problem: tiny
Device: both
"""

import gc

import torch


@torch.inference_mode()
def tiny(x, y):
    gc.collect(0)
    positive = torch.exp(2 * (x * y).double())
    return (1 - 2 / (positive + 1) + x).float()
