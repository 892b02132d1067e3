"""Counts the batches and moves the running statistics by one part of the difference.

Problem: averaged_norm
Device: both
"""

import torch


class Statistics(torch.nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(channels))
        self.bias = torch.nn.Parameter(torch.zeros(channels))
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))
        self.register_buffer("num_batches_tracked", torch.tensor(0))


class ModelNew(torch.nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = Statistics(channels)

    @torch.no_grad()
    def forward(self, x):
        norm = self.norm
        norm.num_batches_tracked += 1
        part = 1 / norm.num_batches_tracked.double()
        wide = x.double()
        mean = wide.mean((0, 2, 3), keepdim=True)
        centred = wide - mean
        squares = centred.square().sum((0, 2, 3))
        count = x.numel() // x.shape[1]
        for running, batch in ((norm.running_mean, mean.flatten()), (norm.running_var, squares / (count - 1))):
            running.copy_(running.double() * (1 - part) + batch * part)
        scale = norm.weight / torch.sqrt(squares / count + 1e-5)
        return (centred * scale[:, None, None] + norm.bias[:, None, None]).float()
