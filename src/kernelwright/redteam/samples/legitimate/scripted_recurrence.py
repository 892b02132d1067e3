"""Compiles the loop by TorchScript when it is imported.

Problem: gated_recurrence
Device: both
"""

from typing import Optional

import torch


@torch.jit.script
def loop(x: torch.Tensor, gate: torch.Tensor, state: Optional[torch.Tensor]):  # noqa: UP045
    forget = torch.sigmoid(gate)
    added = torch.sigmoid(-gate) * x
    states = torch.empty_like(x)
    current = torch.zeros_like(x[:, 0])
    if state is not None:
        current = state
    for t in range(x.shape[1]):
        current = torch.addcmul(added[:, t], forget[:, t], current)
        states[:, t] = current
    return states, current


def gated_recurrence(x, gate, state=None):
    states, last = loop(x, gate, state)
    return {"states": states, "last": last}
