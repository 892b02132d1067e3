"""Multiplies the logarithms of all probabilities by a one-hot matrix, in FP64.

Problem: cross_entropy
Device: both
"""

import torch


def cross_entropy(logits, targets):
    chosen = torch.nn.functional.one_hot(targets, logits.shape[1]).double()
    return -(torch.log_softmax(logits.double(), 1) * chosen).sum(1).mean().float()
