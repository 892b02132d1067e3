"""Returns zeros for rows whose mask selects nothing, where the reference returns equal probabilities.

Problem: masked_scores
Code: inaccurate
Device: both
"""

import torch


def masked_scores(scores, mask):
    probabilities = torch.softmax(scores.masked_fill(~mask, -1e9), -1)
    return torch.where(mask.any(-1, keepdim=True), probabilities, 0.0)
