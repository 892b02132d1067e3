"""Chooses the last of equal numbers first, where torch.topk promises no order.

Problem: top_four
Device: both
"""

import torch


def top_four(x):
    order = x.shape[-1] - 1 - torch.argsort(x.flip(-1), dim=-1, descending=True, stable=True)[:, :4]
    return x.gather(-1, order), order
