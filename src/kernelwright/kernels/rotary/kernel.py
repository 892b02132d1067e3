"""Rotary embedding: all heads of a token, of queries and keys, by one program that reads its angles once.

Idea: pairs of a head are rotated by the token's angles; a rotation's gradient is the rotation back. Pairs are
neighbours (interleaved) or lie half the rotated width apart. What lies beyond that width passes through. All is read
before anything is written, so that a token waits once. Bound: DRAM, 2 bytes moved for each byte of queries and keys.

Source: Su et al. 2021, arXiv:2104.09864.
"""

import triton
import triton.language as tl

from kernelwright.kernels.rows.tile import programmatic_launch, wait_for_earlier


@triton.jit
def _part(count, HEADS: tl.constexpr, BEGIN: tl.constexpr, END: tl.constexpr):
    """Heads and the columns from BEGIN to END, padded to powers of two, and which of them `count` heads have."""
    heads = tl.arange(0, triton.next_power_of_2(HEADS))[:, None].to(tl.int64)
    columns = BEGIN + tl.arange(0, triton.next_power_of_2(END - BEGIN))[None, :]
    return heads, columns, (heads < count) & (columns < END)


@triton.jit
def _load(x_ptr, x_stride, count, HEADS: tl.constexpr, BEGIN: tl.constexpr, END: tl.constexpr):
    heads, columns, there = _part(count, HEADS, BEGIN, END)
    return tl.load(x_ptr + heads * x_stride + columns, mask=there, other=0.0)


@triton.jit
def _store(y_ptr, y_stride, y, count, HEADS: tl.constexpr, BEGIN: tl.constexpr, END: tl.constexpr):
    heads, columns, there = _part(count, HEADS, BEGIN, END)
    tl.store(y_ptr + heads * y_stride + columns, y.to(y_ptr.dtype.element_ty), mask=there)


@triton.jit
def _read(x_ptr, x_stride, count, HEADS: tl.constexpr, D: tl.constexpr, R: tl.constexpr, INTERLEAVED: tl.constexpr):
    """The heads of one token as they are stored: the pairs, or one half of them and the other; what is beyond."""
    if INTERLEAVED:
        parts = (_load(x_ptr, x_stride, count, HEADS, 0, R),)
    else:
        parts = _load(x_ptr, x_stride, count, HEADS, 0, R // 2), _load(x_ptr, x_stride, count, HEADS, R // 2, R)
    if R < D:
        parts += (_load(x_ptr, x_stride, count, HEADS, R, D),)
    return parts


@triton.jit
def _write(
    y_ptr, y_stride, count, parts, cos, sin,
    HEADS: tl.constexpr, D: tl.constexpr, R: tl.constexpr, INTERLEAVED: tl.constexpr,
):  # fmt: skip
    """Rotates the heads of one token; cos and sin are (1, PAIRS)."""
    if INTERLEAVED:
        pairs = parts[0].to(tl.float32)
        one, other = tl.split(tl.reshape(pairs, (pairs.shape[0], pairs.shape[1] // 2, 2)))
        turned = tl.reshape(tl.join(one * cos - other * sin, other * cos + one * sin), pairs.shape)
        _store(y_ptr, y_stride, turned, count, HEADS, 0, R)
    else:
        one, other = parts[0].to(tl.float32), parts[1].to(tl.float32)
        _store(y_ptr, y_stride, one * cos - other * sin, count, HEADS, 0, R // 2)
        _store(y_ptr, y_stride, other * cos + one * sin, count, HEADS, R // 2, R)
    if R < D:
        _store(y_ptr, y_stride, parts[1 if INTERLEAVED else 2], count, HEADS, R, D)


@programmatic_launch
@triton.jit(do_not_specialize_on_alignment=["S"])
def rotary(
    q_ptr, k_ptr, cos_ptr, sin_ptr, positions_ptr, q_out_ptr, k_out_ptr, S,
    q_batch, q_token, q_head, k_batch, k_token, k_head,
    q_out_batch, q_out_token, q_out_head, k_out_batch, k_out_token, k_out_head,
    angle_batch, angle_token, position_batch, position_token,
    HEADS_Q: tl.constexpr, HEADS_K: tl.constexpr, D: tl.constexpr, R: tl.constexpr, INTERLEAVED: tl.constexpr,
    BACK: tl.constexpr, EACH: tl.constexpr,
):  # fmt: skip
    """`EACH`: heads of a program, where not all of a token's."""
    wait_for_earlier()
    BLOCKS_Q: tl.constexpr = (HEADS_Q + EACH - 1) // EACH if EACH > 0 else 1
    BLOCKS: tl.constexpr = BLOCKS_Q + (HEADS_K + EACH - 1) // EACH if EACH > 0 else 1
    program, block = tl.program_id(0) // BLOCKS, tl.program_id(0) % BLOCKS
    batch, token = (program // S).to(tl.int64), (program % S).to(tl.int64)
    if positions_ptr is not None:
        angles = tl.load(positions_ptr + batch * position_batch + token * position_token) * angle_token
    else:
        angles = batch * angle_batch + token * angle_token
    pairs = tl.arange(0, triton.next_power_of_2(R // 2))[None, :]
    cos = tl.load(cos_ptr + angles + pairs, mask=pairs < R // 2, other=0.0).to(tl.float32)
    sin = tl.load(sin_ptr + angles + pairs, mask=pairs < R // 2, other=0.0).to(tl.float32)
    sin = -sin if BACK else sin
    q_ptr += batch * q_batch + token * q_token
    k_ptr += batch * k_batch + token * k_token
    q_out_ptr += batch * q_out_batch + token * q_out_token
    k_out_ptr += batch * k_out_batch + token * k_out_token
    if EACH > 0:
        first, count = block * EACH, HEADS_Q
        if block >= BLOCKS_Q:
            first, count = (block - BLOCKS_Q) * EACH, HEADS_K
            q_ptr, q_out_ptr, q_head, q_out_head = k_ptr, k_out_ptr, k_head, k_out_head
        q_ptr += first * q_head
        q_out_ptr += first * q_out_head
        heads = _read(q_ptr, q_head, count - first, EACH, D, R, INTERLEAVED)
        _write(q_out_ptr, q_out_head, count - first, heads, cos, sin, EACH, D, R, INTERLEAVED)
    else:
        q = _read(q_ptr, q_head, HEADS_Q, HEADS_Q, D, R, INTERLEAVED)
        if HEADS_K > 0:
            k = _read(k_ptr, k_head, HEADS_K, HEADS_K, D, R, INTERLEAVED)
        _write(q_out_ptr, q_out_head, HEADS_Q, q, cos, sin, HEADS_Q, D, R, INTERLEAVED)
        if HEADS_K > 0:
            _write(k_out_ptr, k_out_head, HEADS_K, k, cos, sin, HEADS_K, D, R, INTERLEAVED)
