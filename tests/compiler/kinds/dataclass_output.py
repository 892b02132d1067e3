"""A dataclass of results, as the models of transformers return it."""

from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class Output:
    logits: torch.Tensor
    hidden: torch.Tensor | None = None


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(16, 8)

    def forward(self, x):
        hidden = torch.relu(self.layer(x)) + 1
        return Output(logits=hidden.softmax(-1), hidden=hidden)


def get_inputs():
    return [torch.randn(9, 16)]
