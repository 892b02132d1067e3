"""A GRU over short sequences; the weights belong to the module."""

import torch


class Model(torch.nn.Module):
    def __init__(self, into, width):
        super().__init__()
        self.gru = torch.nn.GRU(into, width, batch_first=True)

    def forward(self, x):
        states, last = self.gru(x)
        return states, last


def get_init_inputs():
    return [20, 24]


def get_inputs():
    return [torch.randn(6, 15, 20)]
