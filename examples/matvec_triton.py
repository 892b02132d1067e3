"""A matrix-vector product that streams the weights once: each program takes eight rows, 512 columns at a time."""

import triton
import triton.language as tl
from torch import Tensor

BLOCK_N, BLOCK_K = 8, 512


@triton.jit
def dot_rows(x_ptr, weight_ptr, out_ptr, n, k, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    offs_n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    rows = weight_ptr + offs_n.to(tl.int64)[:, None] * k
    total = tl.zeros((BLOCK_N, BLOCK_K), tl.float32)
    for start in range(0, k, BLOCK_K):
        offs_k = start + tl.arange(0, BLOCK_K)
        x = tl.load(x_ptr + offs_k, mask=offs_k < k, other=0.0).to(tl.float32)
        w = tl.load(rows + offs_k[None, :], mask=(offs_n < n)[:, None] & (offs_k < k)[None, :], other=0.0)
        total += w.to(tl.float32) * x[None, :]
    tl.store(out_ptr + offs_n, tl.sum(total, axis=1).to(out_ptr.dtype.element_ty), mask=offs_n < n)


def matvec(x: Tensor, weight: Tensor) -> Tensor:
    """x: (1, K), weight: (N, K) -> (1, N)."""
    n, k = weight.shape
    x, weight, out = x.contiguous(), weight.contiguous(), x.new_empty(1, n)
    dot_rows[(triton.cdiv(n, BLOCK_N),)](x, weight, out, n, k, BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K)
    return out
