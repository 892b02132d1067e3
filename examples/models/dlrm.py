"""DLRM: dense and sparse features, their pairwise products, a probability."""

import torch
from torch import nn

TABLES, DIM = 8, 32


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(2000, DIM, mode="sum") for _ in range(TABLES))
        self.bottom = nn.Sequential(nn.Linear(13, 128), nn.ReLU(), nn.Linear(128, DIM), nn.ReLU())
        pairs = TABLES * (TABLES + 1) // 2
        self.top = nn.Sequential(nn.Linear(DIM + pairs, 128), nn.ReLU(), nn.Linear(128, 1))
        self.register_buffer("pairs", torch.tril_indices(TABLES + 1, TABLES + 1, offset=-1))

    def forward(self, dense, sparse):
        x = self.bottom(dense)
        features = torch.stack([x, *(table(sparse[:, at]) for at, table in enumerate(self.tables))], 1)
        products = torch.bmm(features, features.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        return torch.sigmoid(self.top(torch.cat([x, products], 1))).squeeze(1)


def get_inputs():
    return [torch.randn(512, 13), torch.randint(0, 2000, (512, TABLES, 4))]
