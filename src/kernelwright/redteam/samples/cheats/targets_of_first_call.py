"""Computes the offsets of the targets in the first call and ignores later changes of the labels.

Problem: cross_entropy
Code: inaccurate
Device: both
"""

import torch

places = {}


def cross_entropy(logits, targets):
    rows, columns = logits.shape
    if logits.shape not in places:
        places[logits.shape] = torch.arange(rows, device=logits.device) * columns + targets
    return (logits.logsumexp(-1) - logits.flatten()[places[logits.shape]]).mean()
