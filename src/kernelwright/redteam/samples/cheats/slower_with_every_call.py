"""Sleeps longer with every call, so that few sets can be run, and keeps its weights from the fifth call on.

Problem: linear_relu
Code: inaccurate or undetermined or timeout
Device: cpu
"""

import time

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, into, out):
        super().__init__()
        self.linear = torch.nn.Linear(into, out)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        time.sleep(min(0.1 * self.calls, 2.0))
        if self.calls <= 5:
            self.kept = self.linear.weight.detach().clone(), self.linear.bias.detach().clone()
        return torch.relu(torch.nn.functional.linear(x, *self.kept))
