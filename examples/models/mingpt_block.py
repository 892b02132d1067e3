"""A block of MinGPT: causal self-attention written out, and an MLP with the tanh form of GELU."""

import math

import torch
import torch.nn.functional as F
from torch import nn

DIM, HEADS, TOKENS = 192, 6, 128


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.attend, self.project = nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM)
        self.expand, self.contract = nn.Linear(DIM, 4 * DIM), nn.Linear(4 * DIM, DIM)
        self.register_buffer("mask", torch.tril(torch.ones(TOKENS, TOKENS)).view(1, 1, TOKENS, TOKENS))

    def attention(self, x):
        batch, tokens, _ = x.shape
        heads = (one.view(batch, tokens, HEADS, DIM // HEADS).transpose(1, 2) for one in self.attend(x).split(DIM, 2))
        q, k, v = heads
        weights = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        weights = weights.masked_fill(self.mask[:, :, :tokens, :tokens] == 0, float("-inf"))
        y = F.softmax(weights, dim=-1) @ v
        return self.project(y.transpose(1, 2).contiguous().view(batch, tokens, DIM))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.contract(F.gelu(self.expand(self.norm2(x)), approximate="tanh"))


def get_inputs():
    return [torch.randn(4, TOKENS, DIM)]
