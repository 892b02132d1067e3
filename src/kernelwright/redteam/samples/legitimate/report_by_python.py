"""Computes loss and counts in plain Python, with math.fsum.

Problem: loss_report
Device: cpu
"""

import math

import torch


def loss_report(logits, targets):
    losses, right = [], 0
    for row, target in zip(logits.tolist(), targets.tolist(), strict=True):
        top = max(row)
        if math.isnan(sum(row)) or math.isinf(top):
            losses.append(math.nan)
            right += next((i for i, one in enumerate(row) if math.isnan(one)), row.index(top)) == target
            continue
        losses.append(top - row[target] + math.log(math.fsum(math.exp(one - top) for one in row)))
        right += row.index(top) == target
    loss = torch.tensor(math.fsum(losses) / len(losses))
    return {"loss": loss, "right": right, "share": right / len(losses)}
