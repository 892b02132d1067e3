"""Adds Gumbel noise to the logits and returns the place of the largest.

Problem: sampled_tokens
Device: both
"""

import torch


def sampled_tokens(logits):
    noise = -torch.empty_like(logits, dtype=torch.float64).exponential_().log()
    return (logits + noise).argmax(-1, keepdim=True)
