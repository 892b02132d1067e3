"""Declares a weight that the problem does not have and relies on a default of one.

Problem: gelu
Code: wrong-parameters
Device: both
"""

import torch


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(()))

    def forward(self, x):
        return torch.nn.functional.gelu(x) * self.scale
