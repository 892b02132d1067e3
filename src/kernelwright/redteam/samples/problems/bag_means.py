"""Means of embeddings of bags of indices, where a bag may be empty; the table belongs to the module."""

import torch


class Model(torch.nn.Module):
    def __init__(self, count, width):
        super().__init__()
        self.table = torch.nn.EmbeddingBag(count, width, mode="mean")

    def forward(self, indices, offsets):
        return self.table(indices, offsets)


def get_init_inputs():
    return [200, 48]


def get_inputs():
    offsets = torch.randint(0, 300, (50,)).sort().values
    offsets[0] = 0
    return [torch.randint(0, 200, (300,)), offsets]
