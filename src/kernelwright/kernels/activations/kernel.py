"""Activations element by element: residual + dropout(act(x + bias) * up), forward and backward.

Idea: one read of each operand and one write of each result; what dropout keeps is a function of a seed and of where an
element stands (Philox), so that nothing about it is stored. Bound: DRAM.

Source: SwiGLU and GeGLU, Shazeer 2020, arXiv:2002.05202; GELU, Hendrycks & Gimpel 2016, arXiv:1606.08415; Philox,
Salmon et al. 2011.
"""

import triton
import triton.language as tl

from kernelwright.kernels.rows.tile import INTERPRETED, programmatic_launch, wait_for_earlier


@triton.jit
def _one_over(x):
    """1 / x within a rounding or two, for what is neither tiny nor huge: that costs five instructions more."""
    if INTERPRETED:
        result = 1.0 / x
    else:
        result = tl.inline_asm_elementwise("rcp.approx.ftz.f32 $0, $1;", "=r,r", [x], tl.float32, True, 1)
    return result


@triton.jit
def _sigmoid(x):
    return _one_over(1.0 + tl.exp2(-1.4426950408889634 * x))


@triton.jit
def _mills(x):
    """The normal distribution beyond x over e^(-x^2 / 2), of x in [0, 16], within 6e-9 of it: a polynomial, fitted here
    for this, of what grows from 0 to 1. As exact as 1 + erf, and in the tail far more so, for half the instructions."""
    near = 0.275 * x
    far = near * _one_over(1.0 + near)
    slope = tl.fma(far, -0.11844896525144577, 0.24102331697940826)
    slope = tl.fma(far, slope, 0.2045726329088211)
    slope = tl.fma(far, slope, -1.2324931621551514)
    slope = tl.fma(far, slope, 1.8550360202789307)
    slope = tl.fma(far, slope, -1.4506982564926147)
    return tl.fma(far, slope, 0.5)


@triton.jit
def _beyond(x):
    """The normal distribution beyond x, of x in [0, 16], within 8e-6 of it, or 2e-4 from 5.4 on: enough for 16 bits.
    Two to the power of a polynomial, fitted here for this, which is half the work."""
    power = tl.fma(x, -2.260505338469443e-09, 1.6064838348484045e-07)
    power = tl.fma(x, power, -5.007906565879239e-06)
    power = tl.fma(x, power, 9.08114670892246e-05)
    power = tl.fma(x, power, -0.001075485721230507)
    power = tl.fma(x, power, 0.008909208700060844)
    power = tl.fma(x, power, -0.05455987527966499)
    power = tl.fma(x, power, -0.4580308794975281)
    power = tl.fma(x, power, -1.1513675451278687)
    return tl.exp2(tl.fma(x, power, -0.9999903440475464))


@triton.constexpr_function
def _of_16_bits(pointers):
    return pointers.dtype.element_ty.primitive_bitwidth == 16


@triton.jit
def _value_and_slope(x, KIND: tl.constexpr, OF_16_BITS: tl.constexpr):
    """The activation of x and its derivative, as exact as what they are rounded to."""
    if KIND == "silu":
        share = _sigmoid(x)
        value, slope = x * share, share * (1.0 + x * (1.0 - share))
    elif KIND == "gelu":
        far = tl.minimum(tl.abs(x), 16.0, propagate_nan=tl.PropagateNan.ALL)
        density = tl.exp2(-0.7213475204444817 * far * far)
        beyond = _beyond(far) if OF_16_BITS else density * _mills(far)
        value = tl.maximum(x, 0.0) - far * beyond
        slope = beyond - 0.3989422804014327 * far * density
        slope = tl.where(x < 0.0, slope, 1.0 - slope)
    elif KIND == "gelu_tanh":  # (1 + tanh u) / 2 = sigmoid(2 u)
        square = x * x
        share = _sigmoid(1.5957691216057308 * x * (1.0 + 0.044715 * square))
        inner = 1.5957691216057308 * (1.0 + 0.134145 * square)
        value, slope = x * share, share + x * share * (1.0 - share) * inner
    elif KIND == "relu_squared":
        positive = tl.where(x < 0.0, 0.0, x)  # NaN stays one
        value, slope = positive * positive, 2.0 * positive
    else:
        tl.static_assert(KIND == "identity")
        value, slope = x, tl.full(x.shape, 1.0, tl.float32)
    return value, slope


ROUNDS = tl.constexpr(7)
"""Of Philox: the fewest that pass every test of Salmon et al."""


@triton.constexpr_function
def _of_all_integers(p):
    return min(round(p * 2**32), 2**32 - 1)


@triton.jit
def _kept(begin, p: tl.constexpr, seed, BLOCK: tl.constexpr):
    """What dropout multiplies by: 0 for a share p of all places, 1 / (1 - p) for the others; four of one round."""
    a, b, c, d = tl.randint4x(seed, begin // 4 + tl.arange(0, BLOCK // 4), ROUNDS)
    drawn = tl.reshape(tl.join(tl.join(a, c), tl.join(b, d)), (BLOCK,)).to(tl.uint32, bitcast=True)
    return tl.where(drawn >= tl.full((), _of_all_integers(p), tl.uint32), 1.0 / (1.0 - p), 0.0)


@triton.jit
def _loaded(pointers, there):
    """In FP32; `there` is None where all of a block is, so that nothing keeps loads from being wide."""
    x = tl.load(pointers) if there is None else tl.load(pointers, mask=there, other=0.0)
    return x.to(tl.float32)


@triton.jit
def _stored(pointers, x, there):
    x = x.to(pointers.dtype.element_ty)
    if there is None:
        tl.store(pointers, x)
    else:
        tl.store(pointers, x, mask=there)


@triton.jit
def _at(places, stride, N: tl.constexpr):
    """Where elements lie in rows that begin `stride` apart; None where they follow each other."""
    return places if stride is None else places // N * stride + places % N


@triton.jit
def _input(x_ptr, bias_ptr, places, there, stride, N: tl.constexpr):
    x = _loaded(x_ptr + _at(places, stride, N), there)
    return x if bias_ptr is None else x + _loaded(bias_ptr + places % N, there)


@triton.jit
def _forward(
    x_ptr, up_ptr, bias_ptr, residual_ptr, y_ptr, seed, x_stride, up_stride, begin, there,
    N: tl.constexpr, KIND: tl.constexpr, CAST_FIRST: tl.constexpr, p: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    places = begin + tl.arange(0, BLOCK)
    y, _ = _value_and_slope(_input(x_ptr, bias_ptr, places, there, x_stride, N), KIND, _of_16_bits(y_ptr))
    if CAST_FIRST:
        y = y.to(x_ptr.dtype.element_ty).to(tl.float32)
    if up_ptr is not None:
        y *= _loaded(up_ptr + _at(places, up_stride, N), there)
    if p != 0.0:
        y *= _kept(begin, p, seed, BLOCK)
    if residual_ptr is not None:
        y += _loaded(residual_ptr + places, there)
    _stored(y_ptr + places, y, there)


@triton.jit
def _backward(
    dy_ptr, x_ptr, up_ptr, bias_ptr, dx_ptr, dup_ptr, seed, x_stride, up_stride, begin, there,
    N: tl.constexpr, KIND: tl.constexpr, CAST_FIRST: tl.constexpr, p: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    places = begin + tl.arange(0, BLOCK)
    dy = _loaded(dy_ptr + places, there)
    if p != 0.0:
        dy *= _kept(begin, p, seed, BLOCK)
    x = _input(x_ptr, bias_ptr, places, there, x_stride, N)
    value, slope = _value_and_slope(x, KIND, _of_16_bits(dx_ptr))
    if CAST_FIRST:
        value = value.to(x_ptr.dtype.element_ty).to(tl.float32)
    if up_ptr is not None:
        up = _loaded(up_ptr + _at(places, up_stride, N), there)
        _stored(dup_ptr + places, dy * value, there)
        dy *= up
    _stored(dx_ptr + places, dy * slope, there)


@programmatic_launch
@triton.jit(do_not_specialize=["count", "seed"])
def activation_forward(
    x_ptr, up_ptr, bias_ptr, residual_ptr, y_ptr, count, seed, x_stride, up_stride,
    N: tl.constexpr, KIND: tl.constexpr, CAST_FIRST: tl.constexpr, p: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    wait_for_earlier()
    begin = tl.program_id(0).to(tl.int64) * BLOCK
    given = x_ptr, up_ptr, bias_ptr, residual_ptr, y_ptr, seed, x_stride, up_stride, begin
    if begin + BLOCK <= count:
        _forward(*given, None, N, KIND, CAST_FIRST, p, BLOCK)
    else:
        _forward(*given, begin + tl.arange(0, BLOCK) < count, N, KIND, CAST_FIRST, p, BLOCK)


@programmatic_launch
@triton.jit(do_not_specialize=["count", "seed"])
def activation_backward(
    dy_ptr, x_ptr, up_ptr, bias_ptr, dx_ptr, dup_ptr, count, seed, x_stride, up_stride,
    N: tl.constexpr, KIND: tl.constexpr, CAST_FIRST: tl.constexpr, p: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    wait_for_earlier()
    begin = tl.program_id(0).to(tl.int64) * BLOCK
    given = dy_ptr, x_ptr, up_ptr, bias_ptr, dx_ptr, dup_ptr, seed, x_stride, up_stride, begin
    if begin + BLOCK <= count:
        _backward(*given, None, N, KIND, CAST_FIRST, p, BLOCK)
    else:
        _backward(*given, begin + tl.arange(0, BLOCK) < count, N, KIND, CAST_FIRST, p, BLOCK)
