"""Wrong: bfloat16 operands, and the parts of a split K added up in bfloat16 instead of a float32 accumulator."""

import torch
from torch import Tensor

PARTS = 32


def matmul(a: Tensor, b: Tensor) -> Tensor:
    total = torch.zeros(a.shape[0], b.shape[1], dtype=torch.bfloat16, device=a.device)
    for left, right in zip(a.bfloat16().chunk(PARTS, dim=1), b.bfloat16().chunk(PARTS, dim=0), strict=True):
        total += left @ right
    return total.to(a.dtype)
