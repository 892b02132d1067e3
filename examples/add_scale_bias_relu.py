"""relu((x + y) * scale + bias) as four operators.

Waits on memory: each operator reads and writes whole tensors, ten passes in all, where one pass over x, y and the
result (three) would do.
"""

import os

import torch
from torch import Tensor, nn

N = (64 if os.environ.get("KW_SIZE") == "gpu" else 8) * 2**20


class Model(nn.Module):
    def forward(self, x: Tensor, y: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
        return torch.relu((x + y) * scale + bias)


def get_inputs() -> list[Tensor]:
    return [torch.randn(N), torch.randn(N), torch.rand(1) + 0.5, torch.randn(1)]
