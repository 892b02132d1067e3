"""Returns a text that has no encoding in UTF-8 in place of a count.

Problem: loss_report
Code: wrong-structure or runtime-error
Device: both
"""

import torch


def loss_report(logits, targets):
    loss = torch.nn.functional.cross_entropy(logits, targets)
    return {"loss": loss, "right": "\ud800", "share": 0.5}
