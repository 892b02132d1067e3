"""Returns a count in a subclass of int whose comparisons, conversions and text raise.

Problem: loss_report
Code: wrong-structure or runtime-error
Device: both
"""

import torch


class Count(int):
    def __repr__(self):
        raise RuntimeError("not to be read")

    __str__ = __eq__ = __index__ = __int__ = __float__ = __bool__ = __hash__ = __repr__


def loss_report(logits, targets):
    loss = torch.nn.functional.cross_entropy(logits, targets)
    right = int((logits.argmax(-1) == targets).sum())
    return {"loss": loss, "right": Count(right), "share": right / len(targets)}
