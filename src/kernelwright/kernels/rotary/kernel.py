"""Rotary embedding: all heads of a token, of queries and keys, by one program that reads its angles once.

Idea: pairs of a head are rotated by the token's angles; a rotation's gradient is the rotation back. Pairs are
neighbours (interleaved) or lie half the rotated width apart. What lies beyond that width passes through. Bound: DRAM, 2
bytes moved for each byte of queries and keys.

Source: Su et al. 2021, arXiv:2104.09864.
"""

import triton
import triton.language as tl


@triton.jit
def _rotate_heads(
    x_ptr, y_ptr, x_stride, y_stride, cos, sin,
    HEADS: tl.constexpr, D: tl.constexpr, R: tl.constexpr, INTERLEAVED: tl.constexpr,
):  # fmt: skip
    """Rotates the heads of one token; cos and sin are (1, PAIRS)."""
    HEADS_2: tl.constexpr = triton.next_power_of_2(HEADS)
    PAIRS: tl.constexpr = triton.next_power_of_2(R // 2)
    heads, pairs = tl.arange(0, HEADS_2)[:, None].to(tl.int64), tl.arange(0, PAIRS)[None, :]
    x_ptr += heads * x_stride
    y_ptr += heads * y_stride
    if INTERLEAVED:
        columns = tl.arange(0, 2 * PAIRS)[None, :]
        there = (heads < HEADS) & (columns < R)
        x = tl.load(x_ptr + columns, mask=there, other=0.0).to(tl.float32)
        one, other = tl.split(tl.reshape(x, (HEADS_2, PAIRS, 2)))
        y = tl.reshape(tl.join(one * cos - other * sin, other * cos + one * sin), (HEADS_2, 2 * PAIRS))
        tl.store(y_ptr + columns, y.to(y_ptr.dtype.element_ty), mask=there)
    else:
        there = (heads < HEADS) & (pairs < R // 2)
        one = tl.load(x_ptr + pairs, mask=there, other=0.0).to(tl.float32)
        other = tl.load(x_ptr + R // 2 + pairs, mask=there, other=0.0).to(tl.float32)
        tl.store(y_ptr + pairs, (one * cos - other * sin).to(y_ptr.dtype.element_ty), mask=there)
        tl.store(y_ptr + R // 2 + pairs, (other * cos + one * sin).to(y_ptr.dtype.element_ty), mask=there)
    if R < D:
        beyond = R + tl.arange(0, triton.next_power_of_2(D - R))[None, :]
        there = (heads < HEADS) & (beyond < D)
        tl.store(y_ptr + beyond, tl.load(x_ptr + beyond, mask=there), mask=there)


@triton.jit(do_not_specialize=["S"])
def rotary(
    q_ptr, k_ptr, cos_ptr, sin_ptr, positions_ptr, q_out_ptr, k_out_ptr, S,
    q_batch, q_token, q_head, k_batch, k_token, k_head,
    q_out_batch, q_out_token, q_out_head, k_out_batch, k_out_token, k_out_head,
    angle_batch, angle_token, position_batch, position_token,
    HEADS_Q: tl.constexpr, HEADS_K: tl.constexpr, D: tl.constexpr, R: tl.constexpr, INTERLEAVED: tl.constexpr,
    BACK: tl.constexpr,
):  # fmt: skip
    batch, token = (tl.program_id(0) // S).to(tl.int64), (tl.program_id(0) % S).to(tl.int64)
    if positions_ptr is not None:
        angles = tl.load(positions_ptr + batch * position_batch + token * position_token) * angle_token
    else:
        angles = batch * angle_batch + token * angle_token
    pairs = tl.arange(0, triton.next_power_of_2(R // 2))[None, :]
    cos = tl.load(cos_ptr + angles + pairs, mask=pairs < R // 2, other=0.0).to(tl.float32)
    sin = tl.load(sin_ptr + angles + pairs, mask=pairs < R // 2, other=0.0).to(tl.float32)
    sin = -sin if BACK else sin
    q_ptr += batch * q_batch + token * q_token
    q_out_ptr += batch * q_out_batch + token * q_out_token
    _rotate_heads(q_ptr, q_out_ptr, q_head, q_out_head, cos, sin, HEADS_Q, D, R, INTERLEAVED)
    if HEADS_K > 0:
        k_ptr += batch * k_batch + token * k_token
        k_out_ptr += batch * k_out_batch + token * k_out_token
        _rotate_heads(k_ptr, k_out_ptr, k_head, k_out_head, cos, sin, HEADS_K, D, R, INTERLEAVED)
