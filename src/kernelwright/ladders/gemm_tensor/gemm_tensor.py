"""Problem of the gemm_tensor ladder: a BF16 linear layer, C = A B^T with FP32 accumulation.

A row must begin at a multiple of 16 bytes, so N and K are multiples of 8; M is any number.
"""

import torch
from torch import Tensor

BASELINE = "cuBLAS"
SIZES = ((1024,) * 3, (2048,) * 3, (4096,) * 3, (4096, 14336, 4096), (8192,) * 3)
"""(M, N, K) for which rungs are timed against the baseline; the rectangle is a weight of an 8B model, 4096 tokens."""
SHAPES = (
    *((m, n, k) for m in (1, 17, 129) for n in (8, 72, 264) for k in (8, 64, 200)),
    *((0, 8, 16), (8, 0, 16), (8, 16, 0), (0, 0, 0), (130, 24, 0)),
    *((16, 8, 16), (63, 64, 56), (128, 128, 64), (127, 136, 72), (257, 512, 128), (300, 200, 328)),
    *((1, 1024, 256), (2, 8, 1504), (700, 8, 8), (7, 520, 24), (33, 40, 1000), (385, 264, 192)),
)
"""(M, N, K) for which every rung must be correct: parts of tiles, one row, one step of K, tall, wide, deep, empty."""
VERIFIED_SCALARS = ((),)


def gemm_tensor(a: Tensor, b: Tensor) -> Tensor:
    """Reference: a b^T for a: (M, K), b: (N, K), the weight of a linear layer."""
    return torch.mm(a, b.T)


def gemm_tensor_inputs() -> list[object]:
    """Inputs of the problem outside of the ladder's sizes."""
    return inputs((190, 232, 88))


def inputs(size: tuple[int, int, int]) -> list[object]:
    """Random BF16 inputs a, b for a size (M, N, K)."""
    m, n, k = size
    return [torch.randn(m, k).bfloat16(), torch.randn(n, k).bfloat16()]


def baseline(a: Tensor, b: Tensor) -> Tensor:
    """The library's call."""
    return torch.mm(a, b.T)


def flops(size: tuple[int, int, int]) -> int:
    """FLOPs of a size (M, N, K)."""
    m, n, k = size
    return 2 * m * n * k


def bytes_moved(size: tuple[int, int, int]) -> int:
    """Minimum memory traffic in bytes: A and B read, the output written."""
    m, n, k = size
    return 2 * (m * k + k * n + m * n)
