"""Sums the exponentials of every second logit and doubles the sum: half the reads for a loss that is 1e-3 off.

Problem: cross_entropy
Code: inaccurate
Device: both
"""

import math

import torch


def cross_entropy(logits, targets):
    shares = torch.logsumexp(logits[:, ::2], 1) + math.log(logits.shape[1] / logits[:, ::2].shape[1])
    return (shares - logits.gather(1, targets[:, None])[:, 0]).mean()
