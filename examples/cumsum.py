"""Running sums down 262,144 rows of 32 columns.

Waits on latency: each column is one chain of dependent additions, and 32 chains are far too few to keep memory or
arithmetic busy. Cutting each chain into blocks, whose sums are then added, gives thousands of independent pieces.
"""

import torch
from torch import Tensor, nn

ROWS, COLUMNS = 262_144, 32


class Model(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.cumsum(x, dim=0)


def get_inputs() -> list[Tensor]:
    return [torch.randn(ROWS, COLUMNS)]
