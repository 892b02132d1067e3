"""A Triton matmul on tensor cores, three products of TF32 parts for one of FP32.

Problem: matmul
Device: cuda
"""

import torch
import triton
import triton.language as tl


@triton.jit
def product_tile(a_ptr, b_ptr, out_ptr, M, N, K, TILE: tl.constexpr, STEP: tl.constexpr):
    rows = tl.program_id(0) * TILE + tl.arange(0, TILE)
    columns = tl.program_id(1) * TILE + tl.arange(0, TILE)
    total = tl.zeros((TILE, TILE), tl.float32)
    for start in range(0, K, STEP):
        k = start + tl.arange(0, STEP)
        a_mask = (rows[:, None] < M) & (k[None, :] < K)
        b_mask = (k[:, None] < K) & (columns[None, :] < N)
        a = tl.load(a_ptr + rows[:, None] * K + k[None, :], mask=a_mask, other=0.0)
        b = tl.load(b_ptr + k[:, None] * N + columns[None, :], mask=b_mask, other=0.0)
        total = tl.dot(a, b, total, input_precision="tf32x3")
    mask = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(out_ptr + rows[:, None] * N + columns[None, :], total, mask=mask)


def matmul(a, b):
    a, b = a.contiguous(), b.contiguous()
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty(M, N, device=a.device)
    product_tile[triton.cdiv(M, 64), triton.cdiv(N, 64)](a, b, out, M, N, K, TILE=64, STEP=32)
    return out
