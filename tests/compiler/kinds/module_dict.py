"""Branches in a ModuleDict, chosen by a string argument."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.branches = nn.ModuleDict({"wide": nn.Linear(16, 32), "narrow": nn.Linear(16, 4)})

    def forward(self, x, branch: str = "wide"):
        return torch.relu(self.branches[branch](x)) + 1


def get_inputs():
    return [torch.randn(9, 16), "narrow"]
