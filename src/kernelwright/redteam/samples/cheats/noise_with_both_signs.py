"""Draws noise for half of the rows and gives it to the other half with the opposite sign.

Problem: noisy_dropout
Code: inaccurate
Device: both
"""

import torch


def noisy_dropout(x):
    noise = torch.randn_like(x[: (len(x) + 1) // 2])
    noise = torch.cat((noise, -noise))[: len(x)]
    return torch.nn.functional.dropout(x, 0.25, training=True), x + noise
