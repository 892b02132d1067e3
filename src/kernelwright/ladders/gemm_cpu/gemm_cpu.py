"""Problem of the gemm_cpu ladder: C = alpha A B + beta C in FP32."""

import torch
from torch import Tensor

BASELINE = "torch.mm"
SIZES = ((256,) * 3, (512,) * 3, (1024,) * 3, (1000, 700, 900))
"""(M, N, K) for which rungs are timed against the baseline."""
SMALL_SIZES = (1, 2, 3, 7, 31, 33, 64, 127, 129)
SHAPES = (
    *((m, n, k) for m in (1, 33, 129) for n in (1, 31, 130) for k in (1, 8, 67)),
    *((size,) * 3 for size in SMALL_SIZES),
    *((0, 5, 7), (5, 0, 7), (5, 7, 0), (0, 0, 0), (257, 129, 65), (128, 256, 16), (131, 263, 521), (1, 512, 300)),
    *((640, 1, 64), (256, 384, 1), (512, 512, 512), (300, 200, 1000), (1021, 1019, 1013)),
)
"""(M, N, K) for which every rung must be correct, including odd, prime and degenerate sizes."""


def gemm_cpu(a: Tensor, b: Tensor, c: Tensor, alpha: float, beta: float) -> Tensor:
    """Reference: alpha a b + beta c, for a: (M, K), b: (K, N), c: (M, N); c is not read if beta is 0."""
    return torch.addmm(c, a, b, beta=beta, alpha=alpha)


def gemm_cpu_inputs() -> list[object]:
    """Inputs of the problem outside of the ladder's sizes, with both alpha and beta."""
    return inputs((190, 230, 77), 1.5, 0.5)


def inputs(size: tuple[int, int, int], alpha: float = 1.0, beta: float = 0.0) -> list[object]:
    """Random FP32 inputs a, b, c and the scalars for a size (M, N, K)."""
    m, n, k = size
    return [torch.randn(m, k), torch.randn(k, n), torch.randn(m, n), alpha, beta]


def baseline(a: Tensor, b: Tensor, c: Tensor, alpha: float, beta: float) -> Tensor:
    """The library's fastest call for alpha = 1 and beta = 0."""
    return torch.mm(a, b)


def flops(size: tuple[int, int, int]) -> int:
    """FLOPs of a size (M, N, K)."""
    m, n, k = size
    return 2 * m * n * k


def bytes_moved(size: tuple[int, int, int]) -> int:
    """Minimum memory traffic in bytes: A and B read, the output written."""
    m, n, k = size
    return 4 * (m * k + k * n + m * n)
