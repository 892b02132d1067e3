"""Batch normalisation in training mode: its running statistics change with every call."""

import torch


class Model(torch.nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(channels)

    def forward(self, x):
        return self.norm(x)


def get_init_inputs():
    return [131]


def get_inputs():
    return [torch.randn(257, 131)]
