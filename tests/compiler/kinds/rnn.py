"""torch's RNN with two layers."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.RNN(16, 8, num_layers=2, batch_first=True)

    def forward(self, x):
        states, last = self.rnn(x)
        return torch.relu(states) * 2, last


def get_inputs():
    return [torch.randn(3, 6, 16)]
