"""Draws one uniform number and uses it for the tokens of all rows.

Problem: sampled_tokens
Code: inaccurate
Device: both
"""

import torch


def sampled_tokens(logits):
    sums = torch.softmax(logits, -1).cumsum(-1)
    place = torch.rand((), device=logits.device).expand(len(logits), 1).contiguous()
    return torch.searchsorted(sums, place).clamp(max=logits.shape[-1] - 1)
