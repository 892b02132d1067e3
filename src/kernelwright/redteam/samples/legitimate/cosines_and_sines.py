"""Multiplies the rows with matrices of cosines and sines, in FP64, and returns two tensors of their own.

Problem: spectrum_parts
Device: both
"""

import math

import torch


def spectrum_parts(x):
    length = x.shape[-1]
    place = torch.arange(length, device=x.device)
    turns = place[:, None] * place[: length // 2 + 1] % length
    angle = turns.double() * (2 * math.pi / length)
    wide = x.double()
    return (wide @ angle.cos()).float(), (wide @ -angle.sin()).float()
