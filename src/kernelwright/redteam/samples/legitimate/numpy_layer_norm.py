"""All arithmetic in NumPy, with means in FP64.

Problem: layer_norm
Device: cpu
"""

import numpy as np
import torch


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.norm = torch.nn.LayerNorm(columns)

    def forward(self, x):
        rows = x.detach().numpy()
        away = rows - rows.mean(-1, keepdims=True, dtype=np.float64)
        variance = np.square(away).mean(-1, keepdims=True)
        normalized = away / np.sqrt(variance + self.norm.eps)
        scaled = normalized * self.norm.weight.detach().numpy() + self.norm.bias.detach().numpy()
        return torch.from_numpy(scaled.astype(np.float32))
