"""One token through one linear layer: a matrix-vector product.

Every weight is read once for two FLOPs, and the 235 MB of weights (float32) exceed any last cache, so the memory's
read bandwidth is the floor; more tokens at once would cost nothing more. On a GPU it waits on memory. On a CPU, MKL
walks the weights with one thread, half the machine's bandwidth: too little in flight, until somebody splits the rows
(matvec.cpp).
"""

import os

import torch
from torch import Tensor, nn

WIDTH, HIDDEN = 4096, 14336
DTYPE = torch.bfloat16 if os.environ.get("KW_SIZE") == "gpu" else torch.float32


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(HIDDEN, WIDTH, dtype=DTYPE) / WIDTH**0.5, requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight.T


def get_inputs() -> list[Tensor]:
    return [torch.randn(1, WIDTH, dtype=DTYPE)]
