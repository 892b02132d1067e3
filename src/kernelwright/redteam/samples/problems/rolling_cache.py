"""A buffer of the last 32 rows, which every call moves on by one, and its mean."""

import torch


class Model(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.register_buffer("cache", torch.zeros(6, 32, width))

    def forward(self, x):
        self.cache.copy_(self.cache.roll(-1, 1))
        self.cache[:, -1] = x
        return self.cache.mean(1)


def get_init_inputs():
    return [50]


def get_inputs():
    return [torch.randn(6, 50)]
