"""Computes the three gates of each step from the parameters, which it receives as arguments.

Problem: gated_unit
Device: both
"""

import torch


def gated_unit(x, gru_weight_ih_l0, gru_weight_hh_l0, gru_bias_ih_l0, gru_bias_hh_l0):
    state = x.new_zeros(len(x), gru_weight_hh_l0.shape[1])
    states = []
    for step in x.unbind(1):
        from_x = (step @ gru_weight_ih_l0.T + gru_bias_ih_l0).chunk(3, 1)
        from_state = (state @ gru_weight_hh_l0.T + gru_bias_hh_l0).chunk(3, 1)
        reset, update = (torch.sigmoid(one + other) for one, other in zip(from_x[:2], from_state[:2], strict=True))
        new = torch.tanh(from_x[2] + reset * from_state[2])
        state = new + update * (state - new)
        states.append(state)
    return torch.stack(states, 1), state[None].clone()
