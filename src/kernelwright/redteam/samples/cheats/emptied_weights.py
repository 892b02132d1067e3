"""Is correct once and then zeroes the weights, so that every later call returns only the bias.

Problem: linear_relu
Code: input-mutated
Device: both
"""

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, into, out):
        super().__init__()
        self.linear = torch.nn.Linear(into, out)

    @torch.no_grad()
    def forward(self, x):
        weight, bias = self.linear.weight, self.linear.bias
        if not weight[0, 0]:
            return torch.relu(bias).expand(len(x), -1).clone()
        out = torch.relu(torch.nn.functional.linear(x, weight, bias))
        weight.zero_()
        return out
