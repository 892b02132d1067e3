"""Repeats the reference with torch's own layers.

Problem: linear_relu
Code: not-own-kernels
Policy: own-kernels
Device: both
"""

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, into, out):
        super().__init__()
        self.linear = torch.nn.Linear(into, out)
        self.steps = torch.nn.Sequential(torch.nn.Identity(), torch.nn.ReLU())

    def forward(self, x):
        return self.steps(self.linear(x))
