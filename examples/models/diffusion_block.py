"""A residual block of a diffusion U-Net: group norms, SiLU, the embedding of the time step."""

import torch
import torch.nn.functional as F
from torch import nn

CHANNELS, EMBEDDING = 64, 128


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(8, CHANNELS), nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1)
        self.norm2, self.conv2 = nn.GroupNorm(8, CHANNELS), nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1)
        self.embed = nn.Sequential(nn.SiLU(), nn.Linear(EMBEDDING, 2 * CHANNELS))

    def forward(self, x, steps):
        frequencies = torch.exp(torch.arange(EMBEDDING // 2, device=x.device) * (-9.21 / (EMBEDDING // 2)))
        angles = steps[:, None] * frequencies
        scale, shift = self.embed(torch.cat([angles.sin(), angles.cos()], -1))[:, :, None, None].chunk(2, 1)
        y = self.conv1(F.silu(self.norm1(x)))
        y = self.norm2(y) * (1 + scale) + shift
        return x + self.conv2(F.silu(y))


def get_inputs():
    return [torch.randn(2, CHANNELS, 32, 32), torch.rand(2) * 1000]
