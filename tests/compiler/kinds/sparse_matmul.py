"""A sparse matrix of the program's own times a dense one."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        indices = torch.tensor([[0, 1, 4, 7], [2, 0, 8, 3]])
        self.register_buffer("adjacency", torch.sparse_coo_tensor(indices, torch.ones(4), (9, 9)).coalesce())

    def forward(self, x):
        return torch.relu(torch.sparse.mm(self.adjacency, x)) * 2 + 1


def get_inputs():
    return [torch.randn(9, 16)]
