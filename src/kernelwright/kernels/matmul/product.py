"""Computes a product with its epilogue: prepares operands, chooses and launches the kernel."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from kernelwright.core.errors import DeviceError
from kernelwright.kernels.matmul.configs import GemmConfig, Variant
from kernelwright.kernels.matmul.launch import GemmLaunch
from kernelwright.kernels.matmul.operands import ELEMENT_TYPES, TMA_ALIGNMENT, is_readable, prepare_operand
from kernelwright.kernels.matmul.selection import MAX_FEW_ROWS, choose_config
from kernelwright.kernels.matmul.split_operands import split_operand

ACTIVATIONS = {
    "none": "Identity",
    "relu": "Relu",
    "gelu": "GeluErf",
    "gelu_tanh": "GeluTanh",
    "silu": "Silu",
    "swiglu": "Identity",
}
"""Type of `kw/epilogue/activation.cuh` by name; `swiglu` is a layout of the tile."""
CAPABILITY = (9, 0)
MIN_EMULATED_FLOPS = 2 * 512**3
"""FP32 products below are left to FMAs: splitting the operands would take longer than it saves."""
MAX_LAUNCHES = 4096


@dataclass(frozen=True)
class Epilogue:
    """What follows a product: activation(alpha * (a * scale_a) @ (b * scale_b) + bias + beta * residual)."""

    bias: Tensor | None
    residual: Tensor | None
    scale_a: Tensor | None
    scale_b: Tensor | None
    activation: str
    alpha: float
    beta: float


@dataclass(frozen=True)
class Side:
    """An operand as the kernel takes it.

    Attributes:
        terms: one (batch, rows, K) matrix, or the high and the low term.
        kind: element type of the tensor cores.
        transposed: contiguous along the rows.
        scale: (batch, rows) FP32.
        source: the FP32 matrix that was split.
    """

    terms: tuple[Tensor, ...]
    kind: str
    transposed: bool
    scale: Tensor | None
    source: Tensor

    @property
    def fp32_operand(self) -> tuple[int, int, int, int]:
        """Address and strides of the FP32 matrix."""
        one = self.source
        return one.data_ptr(), one.stride(1), one.stride(2), one.stride(0)


def result_shape(a: Tensor, b: Tensor, activation: str) -> tuple[int, ...]:
    """Shape of the result."""
    return (*a.shape[:-1], b.shape[-1] // 2 if activation == "swiglu" else b.shape[-1])


def multiply(a: Tensor, b: Tensor, epilogue: Epilogue, out: Tensor, precision: str) -> Tensor:
    """Write a product of checked operands to `out`, and return it.

    Raises:
        DeviceError: not on a CUDA device.
    """
    key = _repeat_key(a, b, epilogue, out, precision)
    if (repeat := _THREAD.repeats.get(key)) is not None:
        repeat(a, b, epilogue, out)
        return out
    if not a.is_cuda:
        raise DeviceError(f"a is on {a.device}; the product needs a CUDA device", next="move it to cuda")
    k, n = b.shape[-2:]
    if out.numel() == 0:
        return out
    is_small = 2 * a.numel() * n < MIN_EMULATED_FLOPS
    is_small_fp32 = a.dtype == torch.float32 and precision != "tf32" and is_small
    if k == 0 or is_small_fp32 or torch.cuda.get_device_capability(a.device) != CAPABILITY:
        return out.copy_(_multiply_with_torch(a, b, epilogue, precision))
    left, right = (a.reshape(1, -1, k), b.unsqueeze(0)) if b.dim() == 2 else (_as_batch(a), _as_batch(b))
    shape = (*left.shape[:2], out.shape[-1])
    target = _view(out, shape)
    target = out.new_empty(shape) if target is None else target
    residual = None if epilogue.residual is None else epilogue.residual.reshape(shape)
    is_repeatable = all(
        one is None or one.data_ptr() == of.data_ptr()
        for one, of in ((a, left), (b, right), (out, target), (epilogue.residual, residual))
        if of is not None
    )
    repeat = _launch(left, right.mT, target, replace(epilogue, residual=residual), precision)
    if repeat is not None and is_repeatable:
        _THREAD.remember(_THREAD.repeats, key, repeat)
    return out if target.data_ptr() == out.data_ptr() else out.copy_(target.reshape(out.shape))


def _repeat_key(a: Tensor, b: Tensor, epilogue: Epilogue, out: Tensor, precision: str) -> tuple[Any, ...]:
    """All that a launch depends on other than addresses and factors."""
    bias, residual = epilogue.bias, epilogue.residual
    return (
        a.shape, a.stride(), b.stride(), out.shape, out.stride(), a.dtype, b.dtype, out.dtype, a.device.index,
        (a.data_ptr() | b.data_ptr() | out.data_ptr()) & TMA_ALIGNMENT - 1, epilogue.activation, precision,
        epilogue.scale_a is None and epilogue.scale_b is None,
        None if bias is None else (bias.dtype, bias.stride()),
        None if residual is None else (residual.dtype, residual.stride()),
    )  # fmt: skip


@dataclass(frozen=True)
class Repeat:
    """A launch whose operands are read where they are: no copies, no terms, no scales."""

    launch: GemmLaunch
    device: int
    swapped: bool

    def __call__(self, a: Tensor, b: Tensor, epilogue: Epilogue, out: Tensor) -> None:
        first, second = (b, a) if self.swapped else (a, b)
        bias, residual = epilogue.bias, epilogue.residual
        self.launch(
            torch._C._cuda_getCurrentRawStream(self.device),
            (first.data_ptr(), second.data_ptr()),
            out.data_ptr(),
            (0 if bias is None else bias.data_ptr(), 0 if residual is None else residual.data_ptr(), 0, 0),
            epilogue.alpha,
            epilogue.beta,
        )


def _as_batch(one: Tensor) -> Tensor:
    return one.reshape(-1, *one.shape[-2:])


def _view(out: Tensor, shape: tuple[int, ...]) -> Tensor | None:
    try:
        return out.view(shape)
    except RuntimeError:
        return None


def _launch(a: Tensor, b_rows: Tensor, out: Tensor, epilogue: Epilogue, precision: str) -> Repeat | None:
    """Launch for (batch, M, K), (batch, N, K) and (batch, M, N); how to repeat it, where that is possible."""
    batch, m, n = out.shape
    emulated = a.dtype == torch.float32 and precision != "tf32"
    is_few = m <= MAX_FEW_ROWS
    sides = [_prepare(a, epilogue.scale_a, emulated, is_few=is_few), _prepare(b_rows, epilogue.scale_b, emulated)]
    if (sides[0].scale is None) != (sides[1].scale is None):
        sides = [replace(one, scale=_ones(one)) if one.scale is None else one for one in sides]
    residual, bias = epilogue.residual, epilogue.bias
    extra = next((one.dtype for one in (residual, bias) if one is not None), out.dtype)
    bias = None if bias is None else bias.to(extra).contiguous()
    variant = Variant(
        sides[0].kind, sides[1].kind, ELEMENT_TYPES[out.dtype], ELEMENT_TYPES[extra],
        transpose_a=sides[0].transposed, transpose_b=sides[1].transposed, tma_store=is_readable(out),
        bias=bias is not None, residual=residual is not None, scales=sides[0].scale is not None,
        activation=ACTIVATIONS[epilogue.activation], gated=epilogue.activation == "swiglu",
    )  # fmt: skip
    config = choose_config(m, n, a.shape[2], batch, variant, _num_sms(a.device.index), terms=2 if emulated else 1)
    if config.swapped:
        sides.reverse()
        out, residual = out.mT, None if residual is None else residual.mT
    launch = _find_launch(config, variant, sides, out, residual)
    launch(
        torch._C._cuda_getCurrentRawStream(a.device.index),
        tuple(one.data_ptr() for side in sides for one in side.terms),
        out.data_ptr(),
        tuple(0 if one is None else one.data_ptr() for one in (bias, residual, sides[0].scale, sides[1].scale)),
        epilogue.alpha,
        epilogue.beta,
        (*sides[0].fp32_operand, *sides[1].fp32_operand) if emulated else (),
    )
    reads_in_place = all(one.terms[0].data_ptr() == one.source.data_ptr() and one.scale is None for one in sides)
    given = epilogue.bias
    reads_in_place &= bias is None or (given is not None and bias.data_ptr() == given.data_ptr())
    return Repeat(launch, a.device.index, config.swapped) if reads_in_place else None


def _prepare(rows: Tensor, scale: Tensor | None, emulated: bool, *, is_few: bool = False) -> Side:
    """An operand; few rows are copied if they are transposed, since their tile may be narrower than a panel."""
    if emulated:
        split = split_operand(rows)
        return Side((split.high, split.low), "f16", split.transposed, split.inverse_scale, rows)
    kind = "tf32" if rows.dtype == torch.float32 else ELEMENT_TYPES[rows.dtype]
    operand = prepare_operand(rows, k_major_only=rows.element_size() != 2 or is_few)
    if scale is not None:
        scale = scale.reshape(-1).expand(rows.shape[0] * rows.shape[1]).contiguous()
    return Side((operand.rows,), kind, operand.transposed, scale, rows)


def _ones(side: Side) -> Tensor:
    return torch.ones(side.source.shape[:2], device=side.source.device)


class _Thread(threading.local):
    """What a thread keeps: launches by their configuration and strides, and calls that can be repeated."""

    def __init__(self) -> None:
        self.launches: dict[Any, GemmLaunch] = {}
        self.repeats: dict[Any, Repeat] = {}

    def remember(self, memory: dict[Any, Any], key: Any, value: Any) -> None:
        if len(memory) >= MAX_LAUNCHES:
            memory.clear()
        memory[key] = value


_THREAD = _Thread()


def _find_launch(
    config: GemmConfig, variant: Variant, sides: list[Side], out: Tensor, residual: Tensor | None
) -> GemmLaunch:
    a, b = sides
    tma_store = variant.tma_store and config.split_k == 1 and (out.element_size() == 2 or not config.swapped)
    variant = replace(
        variant, a=a.kind, b=b.kind, transpose_a=a.transposed, transpose_b=b.transposed, tma_store=tma_store
    )
    tensors = [a.terms[0], b.terms[0], out, *([] if residual is None else [residual])]
    key = (config, variant, out.device.index, *((one.shape, one.stride()) for one in tensors))
    launch = _THREAD.launches.get(key)
    if launch is None:
        launch = GemmLaunch(config, variant, a.terms, b.terms, out, residual)
        _THREAD.remember(_THREAD.launches, key, launch)
    return launch


@functools.cache
def _num_sms(device: int) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count


def _multiply_with_torch(a: Tensor, b: Tensor, epilogue: Epilogue, precision: str) -> Tensor:
    """The same with torch's operators, in FP32: for K = 0, small FP32 products, and other GPUs."""
    with _allow_tf32(precision == "tf32"):
        value = epilogue.alpha * (a.float() @ b.float())
    for scale in (epilogue.scale_a, epilogue.scale_b):
        value = value if scale is None else value * scale
    value = value if epilogue.bias is None else value + epilogue.bias.float()
    value = value if epilogue.residual is None else value + epilogue.beta * epilogue.residual.float()
    return apply_activation(value, epilogue.activation)


@contextmanager
def _allow_tf32(allowed: bool) -> Iterator[None]:
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = allowed
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def apply_activation(x: Tensor, activation: str) -> Tensor:
    """An activation by torch's operators."""
    match activation:
        case "relu":
            return F.relu(x)
        case "gelu":
            return F.gelu(x)
        case "gelu_tanh":
            return F.gelu(x, approximate="tanh")
        case "silu":
            return F.silu(x)
        case "swiglu":
            gate, up = x.chunk(2, dim=-1)
            return F.silu(gate) * up
    return x
