"""Computes a product with its epilogue: prepares operands, chooses and launches the kernel."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from kernelwright.core.errors import DeviceError, MissingDependency
from kernelwright.kernels.matmul.configs import TMA_ALIGNMENT, GemmConfig, Variant
from kernelwright.kernels.matmul.emulated import launch_emulated
from kernelwright.kernels.matmul.epilogue import ACTIVATIONS, BF16_ACTIVATIONS, STATISTICS, Epilogue
from kernelwright.kernels.matmul.fallback import apply_activation, multiply_with_torch
from kernelwright.kernels.matmul.launch import GemmLaunch, count_multiprocessors, current_stream
from kernelwright.kernels.matmul.operands import (
    ELEMENT_TYPES,
    align_block_scales,
    is_readable,
    prepare_operand,
)
from kernelwright.kernels.matmul.repeats import THREAD, AnyRepeat, Remembered, Repeat, call_key
from kernelwright.kernels.matmul.selection import (
    MAX_FEW_ROWS,
    MIN_EMULATED_K,
    can_split_in_loop,
    choose_config,
    emulation_pays,
)
from kernelwright.kernels.rows.launcher import device_guard
from kernelwright.toolchain.cuda.compiler import import_cuda_core

CAPABILITY = (9, 0)


@dataclass(frozen=True)
class Side:
    """An operand as the kernel takes it.

    Attributes:
        rows: (batch, rows, K).
        kind: element type of the tensor cores.
        transposed: contiguous along the rows.
        scale: (batch, rows) FP32; of blocks, (batch, rows, K / 128) or (batch, rows / 128, K / 128); one number.
    """

    rows: Tensor
    kind: str
    transposed: bool
    scale: Tensor | None


def result_shape(a: Tensor, b: Tensor, activation: str) -> tuple[int, ...]:
    """Shape of the result."""
    return (*a.shape[:-1], b.shape[-1] // 2 if activation == "swiglu" else b.shape[-1])


def multiply(
    a: Tensor, b: Tensor, epilogue: Epilogue, out: Tensor, precision: str, config: GemmConfig | None = None
) -> Tensor | None:
    """Write a product of checked operands to `out`.

    Args:
        config: replaces the choice for this shape.
    Returns:
        Statistics of rows, if the epilogue has any: (batch, M, parts) or, for `log_sum_exp`, (batch, M, parts, 2).
    """
    k = b.shape[-2]
    left, right = (a.reshape(1, -1, k), b.unsqueeze(0)) if b.dim() == 2 else (_as_batch(a), _as_batch(b))
    shape = (*left.shape[:2], out.shape[-1])
    target = _view(out, shape)
    target = out.new_empty(shape) if target is None else target
    residual = None if epilogue.residual is None else epilogue.residual.reshape(shape)
    repeat, statistics = _launch(left, right.mT, target, epilogue._replace(residual=residual), precision, config)
    pairs = ((a, left), (b, right), (out, target), (epilogue.residual, residual))
    in_place = all(one is None or one.data_ptr() == of.data_ptr() for one, of in pairs if of is not None)
    if repeat and in_place and config is None:
        key = _call_key(a, b, epilogue, out, precision)
        THREAD.remember(THREAD.repeats, key, Remembered.of(repeat, out))
    if target.data_ptr() != out.data_ptr():
        out.copy_(target.reshape(out.shape))
    return statistics


def gemm_is_available() -> bool:
    """Whether cuda-core is installed, with which `gemm` compiles and launches its kernels."""
    try:
        import_cuda_core()
    except MissingDependency:
        return False
    return True


def is_fused(a: Tensor, b: Tensor, precision: str) -> bool:
    """Whether the kernel computes this product: on Hopper, and in FP32 where splitting the operands pays.

    Raises:
        DeviceError: not on a CUDA device.
    """
    if not a.is_cuda:
        raise DeviceError(f"a is on {a.device}; the product needs a CUDA device", next="move it to cuda")
    if a.numel() * b.shape[-1] == 0:
        return False
    m, n, k, batch = _sizes(a, b)
    if a.dtype == torch.float32 and precision != "tf32":
        in_loop = can_split_in_loop(m, k, batch) and is_readable(_as_batch(b).mT)
        if k < MIN_EMULATED_K or not emulation_pays(m, n, k, batch, in_loop=in_loop):
            return False
    return torch.cuda.get_device_capability(a.device) == CAPABILITY


def _sizes(a: Tensor, b: Tensor) -> tuple[int, int, int, int]:
    """M, N, K and the batch, which is 1 if b has none."""
    n, k, rows = b.shape[-1], b.shape[-2], a.numel() // a.shape[-1]
    return (rows, n, k, 1) if b.dim() == 2 else (a.shape[-2], n, k, rows // a.shape[-2])


def compute(a: Tensor, b: Tensor, epilogue: Epilogue, out: Tensor, precision: str) -> Tensor:
    """Write a product to `out` with the kernel, again as before where that is possible, or with torch's operators."""
    is_emulated = a.dtype == torch.float32 and precision != "tf32"
    if is_emulated and epilogue.activation == "swiglu":  # the two factors have scales of their own
        sums = a.new_empty(result_shape(a, b, "none"), dtype=out.dtype)
        compute(a, b, epilogue._replace(activation="none"), sums, precision)
        return out.copy_(apply_activation(sums, "swiglu"))
    if is_emulated and epilogue.residual is not None and epilogue.residual.data_ptr() == out.data_ptr():
        # rows that two terms cannot hold are computed after the others are written
        epilogue = epilogue._replace(residual=epilogue.residual.clone())
    if not is_fused(a, b, precision):
        return multiply_with_torch(a, b, epilogue, precision, out) if out.numel() else out
    with device_guard(a.device):
        is_plain = epilogue.scale_a is None and epilogue.scale_b is None and epilogue.statistics == "none"
        repeat = THREAD.repeats.get(_call_key(a, b, epilogue, out, precision)) if is_plain else None
        if repeat is None:
            multiply(a, b, epilogue, out, precision)
        else:
            repeat.launch(a, b, epilogue.bias, epilogue.residual, epilogue.alpha, epilogue.beta, out)
    return out


def _call_key(a: Tensor, b: Tensor, epilogue: Epilogue, out: Tensor, precision: str) -> tuple[Any, ...]:
    return call_key(a, b, epilogue.bias, epilogue.residual, epilogue.activation, out.dtype, precision, out)


def _as_batch(one: Tensor) -> Tensor:
    return one.reshape(-1, *one.shape[-2:])


def _view(out: Tensor, shape: tuple[int, ...]) -> Tensor | None:
    try:
        return out.view(shape)
    except RuntimeError:
        return None


def _launch(
    a: Tensor, b_rows: Tensor, out: Tensor, epilogue: Epilogue, precision: str, config: GemmConfig | None
) -> tuple[AnyRepeat | None, Tensor | None]:
    """Launch for (batch, M, K), (batch, N, K) and (batch, M, N).

    Returns:
        How to repeat it, where that is possible, and statistics of rows.
    """
    given = epilogue.bias, epilogue.residual
    dtypes = {one.dtype for one in given if one is not None} or {out.dtype}
    extra = dtypes.pop() if len(dtypes) == 1 else torch.float32
    bias, residual = (None if one is None else one.to(extra) for one in given)
    bias = None if bias is None else bias.contiguous()
    is_short = out.dtype == torch.bfloat16 and a.dtype != torch.float32
    activations = BF16_ACTIVATIONS if is_short else ACTIVATIONS
    variant = Variant(
        "f16", "f16", ELEMENT_TYPES[out.dtype], ELEMENT_TYPES[extra], tma_store=is_readable(out),
        bias=bias is not None, residual=residual is not None, activation=activations[epilogue.activation],
        gated=epilogue.activation == "swiglu", row_statistics=STATISTICS[epilogue.statistics],
    )  # fmt: skip
    epilogue = epilogue._replace(bias=bias, residual=residual)
    if a.dtype == torch.float32 and precision != "tf32":
        repeat, statistics = launch_emulated(a, b_rows, out, epilogue, variant, config), None
    else:
        repeat, statistics = _launch_direct(a, b_rows, out, epilogue, variant, config)
    is_in_place = bias is given[0] and residual is given[1]
    return repeat if is_in_place else None, statistics


def _launch_direct(
    a: Tensor, b_rows: Tensor, out: Tensor, epilogue: Epilogue, variant: Variant, config: GemmConfig | None
) -> tuple[Repeat | None, Tensor | None]:
    batch, m, n = out.shape
    blocks, scale_b = epilogue.has_block_scales, epilogue.scale_b
    scale_b = scale_b.mT if scale_b is not None and scale_b.dim() > 1 else scale_b
    given = [one for one in (epilogue.scale_a, scale_b) if one is not None]
    are_scalars = bool(given) and not blocks and all(one.numel() == 1 for one in given)
    expand = not blocks and not are_scalars
    sides = [
        _prepare(a, epilogue.scale_a, expand_scale=expand, k_major_only=m <= MAX_FEW_ROWS),
        _prepare(b_rows, scale_b, expand_scale=expand, k_major_only=not _can_read_halves(b_rows, variant)),
    ]
    if blocks:
        sides = [replace(one, scale=_block_scales(one, of_rows=one is sides[0])) for one in sides]
    elif (sides[0].scale is None) != (sides[1].scale is None):
        sides = [replace(one, scale=_ones(one)) if one.scale is None else one for one in sides]
    variant = replace(
        variant, a=sides[0].kind, b=sides[1].kind, transpose_a=sides[0].transposed, transpose_b=sides[1].transposed,
        scales=bool(given) and not blocks, scalar_scales=are_scalars, block_scales=blocks,
    )  # fmt: skip
    if config is None:
        config = choose_config(m, n, a.shape[2], batch, variant, count_multiprocessors(a.device))
    statistics = None
    if epilogue.statistics != "none":
        pair = (2,) if epilogue.statistics == "log_sum_exp" else ()
        statistics = out.new_empty((batch, m, -(-n // variant.out_columns(config)), *pair), dtype=torch.float32)
    is_plain = all(side.rows is rows and side.scale is None for side, rows in zip(sides, (a, b_rows), strict=True))
    residual = epilogue.residual
    if config.swapped:
        sides.reverse()
        out, residual = out.mT, None if residual is None else residual.mT
    launch = _find_launch(config, variant.oriented(config), sides, out, residual)
    extra = (epilogue.bias, residual, sides[0].scale, sides[1].scale, statistics)
    launch(
        current_stream(a.device),
        tuple(side.rows.data_ptr() for side in sides),
        out.data_ptr(),
        tuple(0 if one is None else one.data_ptr() for one in extra),
        epilogue.alpha,
        epilogue.beta,
    )
    is_plain &= statistics is None
    return Repeat(launch, a.device.index, config.swapped) if is_plain else None, statistics


def _can_read_halves(b_rows: Tensor, variant: Variant) -> bool:
    """Whether TMA can read the second half of the rows of a gated product if they are contiguous: not in the middle of
    16 bytes."""
    return not variant.gated or b_rows.shape[1] // 2 * b_rows.element_size() % TMA_ALIGNMENT == 0


def _prepare(rows: Tensor, scale: Tensor | None, *, expand_scale: bool, k_major_only: bool) -> Side:
    """An operand; few rows are copied if they are transposed, since their tile may be narrower than a panel."""
    kind = "tf32" if rows.dtype == torch.float32 else ELEMENT_TYPES[rows.dtype]
    operand = prepare_operand(rows, k_major_only=rows.element_size() != 2 or k_major_only)
    if scale is not None and expand_scale:
        batch, count = rows.shape[:2]
        scale = scale.reshape(-1 if scale.numel() > count else 1, count if scale.numel() > 1 else 1)
        scale = scale.expand(batch, count).contiguous()
    return Side(operand.rows, kind, operand.transposed, scale)


def _block_scales(side: Side, *, of_rows: bool) -> Tensor:
    scale = side.scale
    assert scale is not None
    scale = scale.reshape(side.rows.shape[0] if scale.dim() > 2 else 1, -1, scale.shape[-1])
    return align_block_scales(scale, of_rows=of_rows)


def _ones(side: Side) -> Tensor:
    return torch.ones(side.rows.shape[:2], device=side.rows.device)


def _find_launch(
    config: GemmConfig, variant: Variant, sides: list[Side], out: Tensor, residual: Tensor | None
) -> GemmLaunch:
    """The launch for operands in the order of the configuration."""
    a, b = sides
    tensors = [a.rows, b.rows, out, *([] if residual is None else [residual])]
    block_scales = tuple(one.scale for one in sides if one.scale is not None) if variant.block_scales else ()
    key = (config, variant, out.device.index, *((one.shape, one.stride()) for one in (*tensors, *block_scales)))
    launch = THREAD.launches.get(key)
    if launch is None:
        launch = GemmLaunch(config, variant, (a.rows,), (b.rows,), out, residual, block_scales)
        THREAD.remember(THREAD.launches, key, launch)
    return launch
