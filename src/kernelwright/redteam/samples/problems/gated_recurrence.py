"""A linear recurrence with a gate, step by step, from an optional state; returns the states and the last one."""

import torch


def gated_recurrence(x, gate, state=None):
    state = torch.zeros_like(x[:, 0]) if state is None else state
    states = []
    for t in range(x.shape[1]):
        forget = torch.sigmoid(gate[:, t])
        state = forget * state + (1 - forget) * x[:, t]
        states.append(state)
    return {"states": torch.stack(states, 1), "last": state}


def get_inputs():
    return [torch.randn(4, 60, 32), torch.randn(4, 60, 32), None]
