"""Exponentials from a table of 64 powers of two built at import and a short polynomial for the rest, in FP64.

Problem: softmax
Device: cpu
"""

import math

import torch

STEP = math.log(2) / 64
POWERS = torch.exp2(torch.arange(64, dtype=torch.float64) / 64)


def softmax(x):
    away = (x - x.amax(-1, keepdim=True)).double().clamp(min=-200.0)
    steps = torch.round(away / STEP)
    rest = away - steps * STEP
    series = 1 + rest * (1 + rest * (1 / 2 + rest * (1 / 6 + rest * (1 / 24 + rest / 120))))
    whole = steps.long()
    raised = torch.ldexp(series * POWERS[whole & 63], whole >> 6)
    return (raised / raised.sum(-1, keepdim=True)).float()
