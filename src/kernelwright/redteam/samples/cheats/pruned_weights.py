"""Omits the weights below a hundredth of the largest, which a sparse product could skip.

Problem: linear_relu
Code: inaccurate
Device: both
"""

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, into, out):
        super().__init__()
        self.linear = torch.nn.Linear(into, out)

    def forward(self, x):
        size = self.linear.weight.abs()
        weight = self.linear.weight.where(size > size.max() / 100, 0.0)
        return torch.relu(torch.nn.functional.linear(x, weight, self.linear.bias))
