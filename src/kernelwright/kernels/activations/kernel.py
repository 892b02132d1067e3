"""Element-wise activations: residual + dropout(act(x + bias) * up), forward and backward.

Idea: one read of each operand and one write of each result; the dropout mask is a function of the seed and the
element's index (Philox), so it is not stored. Bound: DRAM.

Source: SwiGLU and GeGLU, Shazeer 2020, arXiv:2002.05202; GELU, Hendrycks & Gimpel 2016, arXiv:1606.08415; Philox,
Salmon et al. 2011.
"""

import triton
import triton.language as tl

from kernelwright.kernels.rows.tile import INTERPRETED, grid_dependency_wait, programmatic_launch


@triton.jit
def _rcp_approx(x):
    """1 / x within a rounding or two, for x that is neither tiny nor huge; covering these costs five more
    instructions."""
    if INTERPRETED:
        result = 1.0 / x
    else:
        result = tl.inline_asm_elementwise("rcp.approx.ftz.f32 $0, $1;", "=r,r", [x], tl.float32, True, 1)
    return result


@triton.jit
def _sigmoid(x):
    return _rcp_approx(1.0 + tl.exp2(-1.4426950408889634 * x))


@triton.jit
def _mills_ratio(x):
    """Upper tail of the normal distribution over e^(-x^2 / 2), for x in [0, 16], error below 6e-9.

    A polynomial of a variable that grows from 0 to 1, fitted for this kernel. As accurate as 1 + erf, far more
    accurate in the tail, at half the instructions.
    """
    s = 0.275 * x
    t = s * _rcp_approx(1.0 + s)
    poly = tl.fma(t, -0.11844896525144577, 0.24102331697940826)
    poly = tl.fma(t, poly, 0.2045726329088211)
    poly = tl.fma(t, poly, -1.2324931621551514)
    poly = tl.fma(t, poly, 1.8550360202789307)
    poly = tl.fma(t, poly, -1.4506982564926147)
    return tl.fma(t, poly, 0.5)


@triton.jit
def _normal_tail(x):
    """Upper tail of the normal distribution for x in [0, 16], error below 8e-6, or 2e-4 from 5.4 on: enough for 16
    bits.

    Two to the power of a polynomial fitted for this kernel, half the work of `_mills_ratio`.
    """
    poly = tl.fma(x, -2.260505338469443e-09, 1.6064838348484045e-07)
    poly = tl.fma(x, poly, -5.007906565879239e-06)
    poly = tl.fma(x, poly, 9.08114670892246e-05)
    poly = tl.fma(x, poly, -0.001075485721230507)
    poly = tl.fma(x, poly, 0.008909208700060844)
    poly = tl.fma(x, poly, -0.05455987527966499)
    poly = tl.fma(x, poly, -0.4580308794975281)
    poly = tl.fma(x, poly, -1.1513675451278687)
    return tl.exp2(tl.fma(x, poly, -0.9999903440475464))


@triton.constexpr_function
def _is_16bit(ptrs):
    return ptrs.dtype.element_ty.primitive_bitwidth == 16


@triton.jit
def _act_and_grad(x, KIND: tl.constexpr, IS_16BIT: tl.constexpr):
    """The activation of x and its derivative, accurate to the rounding of the output dtype."""
    if KIND == "silu":
        sigmoid = _sigmoid(x)
        value, grad = x * sigmoid, sigmoid * (1.0 + x * (1.0 - sigmoid))
    elif KIND == "gelu":
        abs_x = tl.minimum(tl.abs(x), 16.0, propagate_nan=tl.PropagateNan.ALL)
        density = tl.exp2(-0.7213475204444817 * abs_x * abs_x)
        tail = _normal_tail(abs_x) if IS_16BIT else density * _mills_ratio(abs_x)
        value = tl.maximum(x, 0.0) - abs_x * tail
        grad = tail - 0.3989422804014327 * abs_x * density
        grad = tl.where(x < 0.0, grad, 1.0 - grad)
    elif KIND == "gelu_tanh":  # (1 + tanh u) / 2 = sigmoid(2 u)
        x_sq = x * x
        sigmoid = _sigmoid(1.5957691216057308 * x * (1.0 + 0.044715 * x_sq))
        inner = 1.5957691216057308 * (1.0 + 0.134145 * x_sq)
        value, grad = x * sigmoid, sigmoid + x * sigmoid * (1.0 - sigmoid) * inner
    elif KIND == "relu_squared":
        relu = tl.where(x < 0.0, 0.0, x)  # NaN propagates
        value, grad = relu * relu, 2.0 * relu
    else:
        tl.static_assert(KIND == "identity")
        value, grad = x, tl.full(x.shape, 1.0, tl.float32)
    return value, grad


PHILOX_ROUNDS = tl.constexpr(7)
"""The fewest rounds that pass every test of Salmon et al."""


@triton.constexpr_function
def _dropout_threshold(p):
    return min(round(p * 2**32), 2**32 - 1)


@triton.jit
def _dropout_scale(block_start, p: tl.constexpr, seed, BLOCK: tl.constexpr):
    """Dropout factor of each element: 0 with probability p, else 1 / (1 - p); one Philox call yields four."""
    a, b, c, d = tl.randint4x(seed, block_start // 4 + tl.arange(0, BLOCK // 4), PHILOX_ROUNDS)
    random_bits = tl.reshape(tl.join(tl.join(a, c), tl.join(b, d)), (BLOCK,)).to(tl.uint32, bitcast=True)
    return tl.where(random_bits >= tl.full((), _dropout_threshold(p), tl.uint32), 1.0 / (1.0 - p), 0.0)


@triton.jit
def _load_fp32(ptrs, mask):
    """Load in FP32; `mask` is None for a full block, so that loads are vectorized."""
    x = tl.load(ptrs) if mask is None else tl.load(ptrs, mask=mask, other=0.0)
    return x.to(tl.float32)


@triton.jit
def _store(ptrs, x, mask):
    """Store in the dtype of the pointer; `mask` is None for a full block."""
    x = x.to(ptrs.dtype.element_ty)
    if mask is None:
        tl.store(ptrs, x)
    else:
        tl.store(ptrs, x, mask=mask)


@triton.jit
def _strided_offs(offs, stride, N: tl.constexpr):
    """Offsets of elements in rows that start `stride` apart; None for contiguous rows."""
    return offs if stride is None else offs // N * stride + offs % N


@triton.jit
def _load_input(x_ptr, bias_ptr, offs, mask, stride, N: tl.constexpr):
    """Load x + bias in FP32."""
    x = _load_fp32(x_ptr + _strided_offs(offs, stride, N), mask)
    return x if bias_ptr is None else x + _load_fp32(bias_ptr + offs % N, mask)


@triton.jit
def _forward(
    x_ptr, up_ptr, bias_ptr, residual_ptr, y_ptr, seed, x_stride, up_stride, block_start, mask,
    N: tl.constexpr, KIND: tl.constexpr, CAST_FIRST: tl.constexpr, p: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One block of the forward pass."""
    offs = block_start + tl.arange(0, BLOCK)
    y, _ = _act_and_grad(_load_input(x_ptr, bias_ptr, offs, mask, x_stride, N), KIND, _is_16bit(y_ptr))
    if CAST_FIRST:
        y = y.to(x_ptr.dtype.element_ty).to(tl.float32)
    if up_ptr is not None:
        y *= _load_fp32(up_ptr + _strided_offs(offs, up_stride, N), mask)
    if p != 0.0:
        y *= _dropout_scale(block_start, p, seed, BLOCK)
    if residual_ptr is not None:
        y += _load_fp32(residual_ptr + offs, mask)
    _store(y_ptr + offs, y, mask)


@triton.jit
def _backward(
    dy_ptr, x_ptr, up_ptr, bias_ptr, dx_ptr, dup_ptr, seed, x_stride, up_stride, block_start, mask,
    N: tl.constexpr, KIND: tl.constexpr, CAST_FIRST: tl.constexpr, p: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One block of the backward pass."""
    offs = block_start + tl.arange(0, BLOCK)
    dy = _load_fp32(dy_ptr + offs, mask)
    if p != 0.0:
        dy *= _dropout_scale(block_start, p, seed, BLOCK)
    x = _load_input(x_ptr, bias_ptr, offs, mask, x_stride, N)
    value, grad = _act_and_grad(x, KIND, _is_16bit(dx_ptr))
    if CAST_FIRST:
        value = value.to(x_ptr.dtype.element_ty).to(tl.float32)
    if up_ptr is not None:
        up = _load_fp32(up_ptr + _strided_offs(offs, up_stride, N), mask)
        _store(dup_ptr + offs, dy * value, mask)
        dy *= up
    _store(dx_ptr + offs, dy * grad, mask)


@programmatic_launch
@triton.jit(do_not_specialize=["numel", "seed"])
def activation_forward(
    x_ptr, up_ptr, bias_ptr, residual_ptr, y_ptr, numel, seed, x_stride, up_stride,
    N: tl.constexpr, KIND: tl.constexpr, CAST_FIRST: tl.constexpr, p: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """y = residual + dropout(act(x + bias) * up) for BLOCK elements."""
    grid_dependency_wait()
    block_start = tl.program_id(0).to(tl.int64) * BLOCK
    args = x_ptr, up_ptr, bias_ptr, residual_ptr, y_ptr, seed, x_stride, up_stride, block_start
    if block_start + BLOCK <= numel:
        _forward(*args, None, N, KIND, CAST_FIRST, p, BLOCK)
    else:
        _forward(*args, block_start + tl.arange(0, BLOCK) < numel, N, KIND, CAST_FIRST, p, BLOCK)


@programmatic_launch
@triton.jit(do_not_specialize=["numel", "seed"])
def activation_backward(
    dy_ptr, x_ptr, up_ptr, bias_ptr, dx_ptr, dup_ptr, numel, seed, x_stride, up_stride,
    N: tl.constexpr, KIND: tl.constexpr, CAST_FIRST: tl.constexpr, p: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """dx and dup for BLOCK elements."""
    grid_dependency_wait()
    block_start = tl.program_id(0).to(tl.int64) * BLOCK
    args = dy_ptr, x_ptr, up_ptr, bias_ptr, dx_ptr, dup_ptr, seed, x_stride, up_stride, block_start
    if block_start + BLOCK <= numel:
        _backward(*args, None, N, KIND, CAST_FIRST, p, BLOCK)
    else:
        _backward(*args, block_start + tl.arange(0, BLOCK) < numel, N, KIND, CAST_FIRST, p, BLOCK)
