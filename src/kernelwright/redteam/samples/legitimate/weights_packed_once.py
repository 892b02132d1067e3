"""Keeps packed weights as long as address, version and every single value are unchanged.

Problem: linear_relu
Device: both
"""

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, into, out):
        super().__init__()
        self.linear = torch.nn.Linear(into, out)
        self.key = self.seen = self.packed = None

    def forward(self, x):
        weight = self.linear.weight
        key = weight.data_ptr(), weight._version
        if key != self.key or not torch.equal(weight, self.seen):
            self.key, self.seen = key, weight.detach().clone()
            self.packed = self.seen.T.contiguous()
        return torch.addmm(self.linear.bias, x, self.packed).relu_()
