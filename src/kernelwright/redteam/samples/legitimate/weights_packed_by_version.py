"""Packs its weights again if their address or torch's version counter changed.

Problem: linear_relu
Device: cpu
"""

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, into, out):
        super().__init__()
        self.linear = torch.nn.Linear(into, out)
        self.key = self.packed = None

    def forward(self, x):
        weight = self.linear.weight
        key = weight.data_ptr(), weight._version
        if key != self.key:
            self.key, self.packed = key, weight.detach().T.contiguous()
        return torch.addmm(self.linear.bias, x, self.packed).relu_()
