"""A large square matrix product.

Waits on arithmetic: N/6 FLOPs for each byte, far beyond what any memory could starve. Nothing to fuse; only another
number format would help, and that is another program.
"""

import os

import torch
from torch import Tensor, nn

GPU = os.environ.get("KW_SIZE") == "gpu"
N = 8192 if GPU else 2048
DTYPE = torch.bfloat16 if GPU else torch.float32


class Model(nn.Module):
    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return a @ b


def get_inputs() -> list[Tensor]:
    return [torch.randn(N, N, dtype=DTYPE), torch.randn(N, N, dtype=DTYPE)]
