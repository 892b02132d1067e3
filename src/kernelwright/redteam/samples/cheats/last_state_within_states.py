"""Returns the last state as a view of all states, where the reference returns two tensors.

Problem: gated_recurrence
Code: aliased-output
Device: both
"""

import torch


def gated_recurrence(x, gate, state=None):
    forget, last = torch.sigmoid(gate), torch.zeros_like(x[:, 0]) if state is None else state
    states = torch.empty_like(x)
    for t in range(x.shape[1]):
        last = torch.add(forget[:, t] * last, (1 - forget[:, t]) * x[:, t], out=states[:, t])
    return {"states": states, "last": states[:, -1]}
