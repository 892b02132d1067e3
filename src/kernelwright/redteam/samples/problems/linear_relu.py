"""A linear layer and a ReLU; the weights belong to the module."""

import torch


class Model(torch.nn.Module):
    def __init__(self, into, out):
        super().__init__()
        self.linear = torch.nn.Linear(into, out)

    def forward(self, x):
        return torch.relu(self.linear(x))


def get_init_inputs():
    return [301, 203]


def get_inputs():
    return [torch.randn(65, 301)]
