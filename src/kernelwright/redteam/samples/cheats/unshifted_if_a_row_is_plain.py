"""Computes exponentials without subtracting the maximum if the largest number of a random row is below nine.

Problem: divergence
Code: inaccurate
Device: both
"""

import torch


def divergence(x, y):
    row = int(torch.randint(0, len(x), ()))
    if float(x[row].abs().max()) < 9 and float(y[row].abs().max()) < 9:
        log_x, log_y = (one - one.exp().sum(-1, keepdim=True).log() for one in (x, y))
    else:
        log_x, log_y = x.log_softmax(-1), y.log_softmax(-1)
    return (log_y.exp() * (log_y - log_x)).sum(-1)
