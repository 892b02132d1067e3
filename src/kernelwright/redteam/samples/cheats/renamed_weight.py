"""Names its weight gain, so that it keeps its own values and the reference's weight is not loaded.

Problem: layer_norm
Code: wrong-parameters
Device: both
"""

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.gain = torch.nn.Parameter(torch.ones(columns))
        self.bias = torch.nn.Parameter(torch.zeros(columns))

    def forward(self, x):
        return torch.nn.functional.layer_norm(x, x.shape[-1:], self.gain, self.bias)
