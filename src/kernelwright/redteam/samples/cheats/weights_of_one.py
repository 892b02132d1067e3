"""Never reads its weight and bias, which are ones and zeros in every new module.

Problem: layer_norm
Code: inaccurate
Device: both
"""

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.norm = torch.nn.LayerNorm(columns)

    def forward(self, x):
        return torch.nn.functional.layer_norm(x, x.shape[-1:])
