"""Transposes its weights again whenever one of them differs from the copy of the last call.

Problem: linear_relu
Device: both
"""

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, into, out):
        super().__init__()
        self.linear = torch.nn.Linear(into, out)
        self.seen = self.packed = None

    def forward(self, x):
        weight = self.linear.weight.detach()
        if self.seen is None or self.seen.device != weight.device or not torch.equal(self.seen, weight):
            self.seen, self.packed = weight.clone(), weight.T.contiguous()
        return (x @ self.packed + self.linear.bias).clamp_(min=0)
