"""Problem of the gemm_hopper ladder: out = a b^T in BF16 with FP32 sums, as a linear layer computes it.

TMA addresses rows that begin at multiples of 16 bytes: K and N are multiples of 8, M is any.
"""

import torch
from torch import Tensor

BASELINE = "cuBLAS"
SIZES = ((1024,) * 3, (2048,) * 3, (4096,) * 3, (8192,) * 3, (16384,) * 3, (8192, 28672, 4096))
"""(M, N, K) for which rungs are timed against the baseline: squares, and the largest weight of an 8B model."""
SHAPES = (
    *((m, n, k) for m in (1, 63, 130) for n in (8, 136, 264) for k in (8, 72, 520)),
    *((size,) * 3 for size in (8, 64, 128, 256, 384, 1024)),
    *((0, 64, 64), (64, 0, 64), (64, 64, 0), (0, 0, 0), (300, 264, 0), (1, 8, 8), (2, 4096, 64), (4096, 8, 64)),
    *((257, 248, 4096), (1000, 1000, 1000), (4100, 72, 200), (33, 8200, 136), (777, 1536, 64), (2047, 1016, 328)),
    *((3001, 2056, 192), (512, 4096, 1024), (1411, 5000, 96)),
)
"""(M, N, K) for which every rung must be correct: no multiples of a tile, one row, K = 8, nothing to sum, no output."""
VERIFIED_SCALARS = ((),)


def gemm_hopper(a: Tensor, b: Tensor) -> Tensor:
    """Reference: a b^T for a: (M, K) and b: (N, K), both BF16 with contiguous rows; (M, N) in BF16."""
    return torch.mm(a, b.T)


def gemm_hopper_inputs() -> list[object]:
    """Inputs of the problem outside of the ladder's sizes."""
    return inputs((190, 232, 104))


def inputs(size: tuple[int, int, int]) -> list[object]:
    """Random BF16 inputs a and b for a size (M, N, K)."""
    m, n, k = size
    return [torch.randn(m, k, dtype=torch.bfloat16), torch.randn(n, k, dtype=torch.bfloat16)]


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
