"""Activations element by element: residual + dropout(act(x + bias) * up), forward and backward.

Idea: one read of each operand and one write of each result; what dropout keeps is a function of a seed and of where an
element stands (Philox), so that nothing about it is stored. Bound: DRAM.

Source: SwiGLU and GeGLU, Shazeer 2020, arXiv:2002.05202; GELU, Hendrycks & Gimpel 2016, arXiv:1606.08415; Philox,
Salmon et al. 2011.
"""

import triton
import triton.language as tl


@triton.jit
def _value_and_slope(x, KIND: tl.constexpr):
    """The activation of x and its derivative."""
    if KIND == "silu":
        share = tl.sigmoid(x)
        value, slope = x * share, share * (1.0 + x * (1.0 - share))
    elif KIND == "gelu":
        share = 0.5 * (1.0 + tl.erf(x * 0.7071067811865476))
        value, slope = x * share, share + x * 0.3989422804014327 * tl.exp(-0.5 * x * x)
    elif KIND == "gelu_tanh":  # (1 + tanh u) / 2 = sigmoid(2 u)
        square = x * x
        share = tl.sigmoid(1.5957691216057308 * x * (1.0 + 0.044715 * square))
        inner = 1.5957691216057308 * (1.0 + 0.134145 * square)
        value, slope = x * share, share + x * share * (1.0 - share) * inner
    elif KIND == "relu_squared":
        positive = tl.maximum(x, 0.0)
        value, slope = positive * positive, 2.0 * positive
    else:
        tl.static_assert(KIND == "identity")
        value, slope = x, tl.full(x.shape, 1.0, tl.float32)
    return value, slope


@triton.jit
def _kept(places, p: tl.constexpr, seed):
    """What dropout multiplies by: 0 for a share p of all places, 1 / (1 - p) for the others."""
    return tl.where(tl.rand(seed, places) >= p, 1.0 / (1.0 - p), 0.0)


@triton.jit
def _input(x_ptr, bias_ptr, places, columns, there, stride, N: tl.constexpr):
    x = tl.load(x_ptr + _at(places, columns, stride, N), mask=there, other=0.0).to(tl.float32)
    if bias_ptr is not None:
        x += tl.load(bias_ptr + columns, mask=there, other=0.0).to(tl.float32)
    return x


@triton.jit
def _at(places, columns, stride, N: tl.constexpr):
    """Where elements lie in rows that begin `stride` apart; 0 where they begin N apart."""
    return places if stride is None else places // N * stride + columns


@triton.jit(do_not_specialize=["count", "seed"])
def activation_forward(
    x_ptr, up_ptr, bias_ptr, residual_ptr, y_ptr, count, seed, x_stride, up_stride,
    N: tl.constexpr, KIND: tl.constexpr, p: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    places = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    there, columns = places < count, places % N
    y, _ = _value_and_slope(_input(x_ptr, bias_ptr, places, columns, there, x_stride, N), KIND)
    if up_ptr is not None:
        y *= tl.load(up_ptr + _at(places, columns, up_stride, N), mask=there, other=0.0).to(tl.float32)
    if p != 0.0:
        y *= _kept(places, p, seed)
    if residual_ptr is not None:
        y += tl.load(residual_ptr + places, mask=there, other=0.0).to(tl.float32)
    tl.store(y_ptr + places, y.to(y_ptr.dtype.element_ty), mask=there)


@triton.jit(do_not_specialize=["count", "seed"])
def activation_backward(
    dy_ptr, x_ptr, up_ptr, bias_ptr, dx_ptr, dup_ptr, count, seed, x_stride, up_stride,
    N: tl.constexpr, KIND: tl.constexpr, p: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    places = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    there, columns = places < count, places % N
    dy = tl.load(dy_ptr + places, mask=there, other=0.0).to(tl.float32)
    if p != 0.0:
        dy *= _kept(places, p, seed)
    value, slope = _value_and_slope(_input(x_ptr, bias_ptr, places, columns, there, x_stride, N), KIND)
    if up_ptr is not None:
        up = tl.load(up_ptr + _at(places, columns, up_stride, N), mask=there, other=0.0).to(tl.float32)
        tl.store(dup_ptr + places, (dy * value).to(dup_ptr.dtype.element_ty), mask=there)
        dy *= up
    tl.store(dx_ptr + places, (dy * slope).to(dx_ptr.dtype.element_ty), mask=there)
