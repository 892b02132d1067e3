"""Rounds inputs and weights to the 10 bits of TF32, as a tensor core would, and accumulates in FP32.

Problem: linear_relu
Code: inaccurate
Device: both
"""

import torch


def tf32(x):
    bits = x.view(torch.int32)
    return ((bits + 0x0FFF + ((bits >> 13) & 1)) & ~0x1FFF).view(torch.float32)


class ModelNew(torch.nn.Module):
    def __init__(self, into, out):
        super().__init__()
        self.linear = torch.nn.Linear(into, out)

    def forward(self, x):
        return torch.relu(tf32(x) @ tf32(self.linear.weight.detach()).T + self.linear.bias)
