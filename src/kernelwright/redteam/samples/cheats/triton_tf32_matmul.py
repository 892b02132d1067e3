"""A Triton kernel whose tensor cores use TF32 instead of FP32.

Problem: matmul
Code: inaccurate
Device: cuda
"""

import torch
import triton
import triton.language as tl


@triton.jit
def matmul_block(a_ptr, b_ptr, out_ptr, M, N, K, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in range(0, K, BLOCK):
        inner = start + tl.arange(0, BLOCK)
        a_there = (rows[:, None] < M) & (inner[None, :] < K)
        b_there = (inner[:, None] < K) & (columns[None, :] < N)
        a = tl.load(a_ptr + rows[:, None] * K + inner[None, :], mask=a_there, other=0.0)
        b = tl.load(b_ptr + inner[:, None] * N + columns[None, :], mask=b_there, other=0.0)
        total += tl.dot(a, b, input_precision="tf32")
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(out_ptr + rows[:, None] * N + columns[None, :], total, mask=inside)


def matmul(a, b):
    a, b = a.contiguous(), b.contiguous()
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device)
    matmul_block[(triton.cdiv(M, 32), triton.cdiv(N, 32))](a, b, out, M, N, K, BLOCK=32)
    return out
