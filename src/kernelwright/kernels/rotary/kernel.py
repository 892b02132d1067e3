"""Rotary embedding: all heads of a token, of queries and keys, by one program that reads its angles once.

Idea: pairs of a head are rotated by the token's angles; a rotation's gradient is the rotation back. Pairs are
neighbours (interleaved) or lie half the rotated width apart. What lies beyond that width passes through. All is read
before anything is written, so that a token waits once. Bound: DRAM, 2 bytes moved for each byte of queries and keys.

Source: Su et al. 2021, arXiv:2104.09864.
"""

import triton
import triton.language as tl


@triton.jit
def _part(HEADS: tl.constexpr, BEGIN: tl.constexpr, END: tl.constexpr):
    """All heads' columns from BEGIN to END, and which of the tile there are."""
    heads = tl.arange(0, triton.next_power_of_2(HEADS))[:, None].to(tl.int64)
    columns = BEGIN + tl.arange(0, triton.next_power_of_2(END - BEGIN))[None, :]
    return heads, columns, (heads < HEADS) & (columns < END)


@triton.jit
def _load(x_ptr, x_stride, HEADS: tl.constexpr, BEGIN: tl.constexpr, END: tl.constexpr):
    heads, columns, there = _part(HEADS, BEGIN, END)
    return tl.load(x_ptr + heads * x_stride + columns, mask=there, other=0.0)


@triton.jit
def _store(y_ptr, y_stride, y, HEADS: tl.constexpr, BEGIN: tl.constexpr, END: tl.constexpr):
    heads, columns, there = _part(HEADS, BEGIN, END)
    tl.store(y_ptr + heads * y_stride + columns, y.to(y_ptr.dtype.element_ty), mask=there)


@triton.jit
def _read(x_ptr, x_stride, HEADS: tl.constexpr, D: tl.constexpr, R: tl.constexpr, INTERLEAVED: tl.constexpr):
    """The heads of one token as they are stored: the pairs, or one half of them and the other; what is beyond."""
    if INTERLEAVED:
        parts = (_load(x_ptr, x_stride, HEADS, 0, R),)
    else:
        parts = _load(x_ptr, x_stride, HEADS, 0, R // 2), _load(x_ptr, x_stride, HEADS, R // 2, R)
    if R < D:
        parts += (_load(x_ptr, x_stride, HEADS, R, D),)
    return parts


@triton.jit
def _write(
    y_ptr, y_stride, parts, cos, sin,
    HEADS: tl.constexpr, D: tl.constexpr, R: tl.constexpr, INTERLEAVED: tl.constexpr,
):  # fmt: skip
    """Rotates the heads of one token; cos and sin are (1, PAIRS)."""
    if INTERLEAVED:
        pairs = parts[0].to(tl.float32)
        one, other = tl.split(tl.reshape(pairs, (pairs.shape[0], pairs.shape[1] // 2, 2)))
        turned = tl.reshape(tl.join(one * cos - other * sin, other * cos + one * sin), pairs.shape)
        _store(y_ptr, y_stride, turned, HEADS, 0, R)
    else:
        one, other = parts[0].to(tl.float32), parts[1].to(tl.float32)
        _store(y_ptr, y_stride, one * cos - other * sin, HEADS, 0, R // 2)
        _store(y_ptr, y_stride, other * cos + one * sin, HEADS, R // 2, R)
    if R < D:
        _store(y_ptr, y_stride, parts[1 if INTERLEAVED else 2], HEADS, R, D)


@triton.jit(do_not_specialize=["S"])
def rotary(
    q_ptr, k_ptr, cos_ptr, sin_ptr, positions_ptr, q_out_ptr, k_out_ptr, S,
    q_batch, q_token, q_head, k_batch, k_token, k_head,
    q_out_batch, q_out_token, q_out_head, k_out_batch, k_out_token, k_out_head,
    angle_batch, angle_token, position_batch, position_token,
    HEADS_Q: tl.constexpr, HEADS_K: tl.constexpr, D: tl.constexpr, R: tl.constexpr, INTERLEAVED: tl.constexpr,
    BACK: tl.constexpr, APART: tl.constexpr,
):  # fmt: skip
    """`APART`: queries and keys of a token have a program each."""
    program, of_keys = tl.program_id(0), False
    if APART:
        program, of_keys = program // 2, program % 2 == 1
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
    if not of_keys:
        q = _read(q_ptr, q_head, HEADS_Q, D, R, INTERLEAVED)
        if HEADS_K > 0 and not APART:
            k = _read(k_ptr, k_head, HEADS_K, D, R, INTERLEAVED)
        _write(q_out_ptr, q_out_head, q, cos, sin, HEADS_Q, D, R, INTERLEAVED)
        if HEADS_K > 0 and not APART:
            _write(k_out_ptr, k_out_head, k, cos, sin, HEADS_K, D, R, INTERLEAVED)
    elif APART:
        k = _read(k_ptr, k_head, HEADS_K, D, R, INTERLEAVED)
        _write(k_out_ptr, k_out_head, k, cos, sin, HEADS_K, D, R, INTERLEAVED)
