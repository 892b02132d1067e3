"""Returns a count as an integer of nine thousand digits, which neither a message nor a decimal text can hold.

Problem: loss_report
Code: inaccurate or runtime-error or wrong-dtype
Device: both
"""

import torch


def loss_report(logits, targets):
    loss = torch.nn.functional.cross_entropy(logits, targets)
    right = int((logits.argmax(-1) == targets).sum())
    return {"loss": loss, "right": right + 10**9000, "share": right / len(targets)}
