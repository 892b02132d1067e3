"""An embedding with a padding index and a bag of embeddings."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(50, 16, padding_idx=0)
        self.bags = nn.EmbeddingBag(50, 16, mode="mean")

    def forward(self, tokens):
        return torch.relu(self.words(tokens).sum(1)) + self.bags(tokens) * 2


def get_inputs():
    return [torch.randint(0, 50, (4, 7))]
