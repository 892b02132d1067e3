"""Rotary embedding: one program rotates all query and key heads of a token and reads the token's angles once.

Idea: pairs of a head are rotated by the token's angles; the gradient is the inverse rotation. The elements of a pair
are adjacent (interleaved) or R / 2 apart, with R the rotated width; columns from R on pass through. All loads
precede the first store, so a token waits for memory once. Bound: DRAM, 2 bytes moved for each byte of queries and
keys.

Source: Su et al. 2021, arXiv:2104.09864.
"""

import triton
import triton.language as tl

from kernelwright.kernels.rows.tile import grid_dependency_wait, programmatic_launch


@triton.jit
def _head_tile(count, HEADS: tl.constexpr, BEGIN: tl.constexpr, END: tl.constexpr):
    """Head and column offsets from BEGIN to END, padded to powers of two, and the mask of the first `count` heads."""
    heads = tl.arange(0, triton.next_power_of_2(HEADS))[:, None].to(tl.int64)
    offs_d = BEGIN + tl.arange(0, triton.next_power_of_2(END - BEGIN))[None, :]
    return heads, offs_d, (heads < count) & (offs_d < END)


@triton.jit
def _load_heads(x_ptr, x_stride, count, HEADS: tl.constexpr, BEGIN: tl.constexpr, END: tl.constexpr):
    """Load columns BEGIN to END of the heads of one token."""
    heads, offs_d, mask = _head_tile(count, HEADS, BEGIN, END)
    return tl.load(x_ptr + heads * x_stride + offs_d, mask=mask, other=0.0)


@triton.jit
def _store_heads(y_ptr, y_stride, y, count, HEADS: tl.constexpr, BEGIN: tl.constexpr, END: tl.constexpr):
    """Store columns BEGIN to END of the heads of one token."""
    heads, offs_d, mask = _head_tile(count, HEADS, BEGIN, END)
    tl.store(y_ptr + heads * y_stride + offs_d, y.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def _load_token(
    x_ptr, x_stride, count, HEADS: tl.constexpr, D: tl.constexpr, R: tl.constexpr, INTERLEAVED: tl.constexpr
):
    """Load the heads of one token in their dtype: the interleaved pairs or the two halves, then the unrotated
    columns."""
    if INTERLEAVED:
        segments = (_load_heads(x_ptr, x_stride, count, HEADS, 0, R),)
    else:
        segments = (
            _load_heads(x_ptr, x_stride, count, HEADS, 0, R // 2),
            _load_heads(x_ptr, x_stride, count, HEADS, R // 2, R),
        )
    if R < D:
        segments += (_load_heads(x_ptr, x_stride, count, HEADS, R, D),)
    return segments


@triton.jit
def _rotate_and_store(
    y_ptr, y_stride, count, segments, cos, sin,
    HEADS: tl.constexpr, D: tl.constexpr, R: tl.constexpr, INTERLEAVED: tl.constexpr,
):  # fmt: skip
    """Rotate and store the heads of one token; cos and sin are (1, PAIRS)."""
    if INTERLEAVED:
        pairs = segments[0].to(tl.float32)
        x1, x2 = tl.split(tl.reshape(pairs, (pairs.shape[0], pairs.shape[1] // 2, 2)))
        rotated = tl.reshape(tl.join(x1 * cos - x2 * sin, x2 * cos + x1 * sin), pairs.shape)
        _store_heads(y_ptr, y_stride, rotated, count, HEADS, 0, R)
    else:
        x1, x2 = segments[0].to(tl.float32), segments[1].to(tl.float32)
        _store_heads(y_ptr, y_stride, x1 * cos - x2 * sin, count, HEADS, 0, R // 2)
        _store_heads(y_ptr, y_stride, x2 * cos + x1 * sin, count, HEADS, R // 2, R)
    if R < D:
        _store_heads(y_ptr, y_stride, segments[1 if INTERLEAVED else 2], count, HEADS, R, D)


@programmatic_launch
@triton.jit(do_not_specialize_on_alignment=["S"])
def rotary(
    q_ptr, k_ptr, cos_ptr, sin_ptr, positions_ptr, q_out_ptr, k_out_ptr, S,
    stride_qb, stride_qs, stride_qh, stride_kb, stride_ks, stride_kh,
    stride_qob, stride_qos, stride_qoh, stride_kob, stride_kos, stride_koh,
    stride_cb, stride_cs, stride_pb, stride_ps,
    HEADS_Q: tl.constexpr, HEADS_K: tl.constexpr, D: tl.constexpr, R: tl.constexpr, INTERLEAVED: tl.constexpr,
    INVERSE: tl.constexpr, HEADS_PER_PROGRAM: tl.constexpr,
):  # fmt: skip
    """Rotate queries and keys; `HEADS_PER_PROGRAM` is 0 if a program takes all heads of a token."""
    grid_dependency_wait()
    BLOCKS_Q: tl.constexpr = (HEADS_Q + HEADS_PER_PROGRAM - 1) // HEADS_PER_PROGRAM if HEADS_PER_PROGRAM > 0 else 1
    BLOCKS: tl.constexpr = (
        BLOCKS_Q + (HEADS_K + HEADS_PER_PROGRAM - 1) // HEADS_PER_PROGRAM if HEADS_PER_PROGRAM > 0 else 1
    )
    pid, block = tl.program_id(0) // BLOCKS, tl.program_id(0) % BLOCKS
    batch, token = (pid // S).to(tl.int64), (pid % S).to(tl.int64)
    if positions_ptr is not None:
        angle_offs = tl.load(positions_ptr + batch * stride_pb + token * stride_ps) * stride_cs
    else:
        angle_offs = batch * stride_cb + token * stride_cs
    pairs = tl.arange(0, triton.next_power_of_2(R // 2))[None, :]
    cos = tl.load(cos_ptr + angle_offs + pairs, mask=pairs < R // 2, other=0.0).to(tl.float32)
    sin = tl.load(sin_ptr + angle_offs + pairs, mask=pairs < R // 2, other=0.0).to(tl.float32)
    sin = -sin if INVERSE else sin
    q_ptr += batch * stride_qb + token * stride_qs
    k_ptr += batch * stride_kb + token * stride_ks
    q_out_ptr += batch * stride_qob + token * stride_qos
    k_out_ptr += batch * stride_kob + token * stride_kos
    if HEADS_PER_PROGRAM > 0:
        first_head, count = block * HEADS_PER_PROGRAM, HEADS_Q
        if block >= BLOCKS_Q:
            first_head, count = (block - BLOCKS_Q) * HEADS_PER_PROGRAM, HEADS_K
            q_ptr, q_out_ptr, stride_qh, stride_qoh = k_ptr, k_out_ptr, stride_kh, stride_koh
        q_ptr += first_head * stride_qh
        q_out_ptr += first_head * stride_qoh
        heads = _load_token(q_ptr, stride_qh, count - first_head, HEADS_PER_PROGRAM, D, R, INTERLEAVED)
        _rotate_and_store(
            q_out_ptr, stride_qoh, count - first_head, heads, cos, sin, HEADS_PER_PROGRAM, D, R, INTERLEAVED
        )
    else:
        q = _load_token(q_ptr, stride_qh, HEADS_Q, HEADS_Q, D, R, INTERLEAVED)
        if HEADS_K > 0:
            k = _load_token(k_ptr, stride_kh, HEADS_K, HEADS_K, D, R, INTERLEAVED)
        _rotate_and_store(q_out_ptr, stride_qoh, HEADS_Q, q, cos, sin, HEADS_Q, D, R, INTERLEAVED)
        if HEADS_K > 0:
            _rotate_and_store(k_out_ptr, stride_koh, HEADS_K, k, cos, sin, HEADS_K, D, R, INTERLEAVED)
