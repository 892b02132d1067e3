"""Returns the last loss again if the targets and the left half of the logits are the same as in the last call.

Problem: cross_entropy
Code: stale-output or inaccurate
Device: both
"""

import torch

last = {}


def cross_entropy(logits, targets):
    left = logits[:, : logits.shape[1] // 2]
    if not last or not torch.equal(last["left"], left) or not torch.equal(last["targets"], targets):
        last.update(left=left.clone(), targets=targets.clone())
        last["loss"] = torch.nn.functional.cross_entropy(logits, targets)
    return last["loss"].clone()
