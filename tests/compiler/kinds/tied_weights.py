"""A language model whose head shares the embedding's weight."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(50, 16)
        self.norm = nn.LayerNorm(16)
        self.head = nn.Linear(16, 50, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens):
        return torch.log_softmax(self.head(self.norm(self.embedding(tokens))), -1)


def get_inputs():
    return [torch.randint(0, 50, (3, 7))]
