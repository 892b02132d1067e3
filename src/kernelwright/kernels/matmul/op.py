"""Matrix products with fused epilogues as torch operators: `gemm` and `linear`."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from kernelwright.core.errors import DeviceError, UsageError
from kernelwright.kernels.matmul.epilogue import ACTIVATIONS, BLOCK, Epilogue
from kernelwright.kernels.matmul.fallback import apply_activation
from kernelwright.kernels.matmul.product import compute, result_shape
from kernelwright.kernels.matmul.repeats import THREAD, call_key
from kernelwright.kernels.operators import Operator, ShapeError, can_skip_dispatcher, require

__all__ = ["gemm", "linear"]

Activation = Literal["none", "relu", "gelu", "gelu_tanh", "silu", "swiglu"]
Precision = Literal["default", "fp32_emulated", "tf32"]
PRECISIONS = ("default", "fp32_emulated", "tf32")
OPERAND_DTYPES = (torch.bfloat16, torch.float16, torch.float32, torch.float8_e4m3fn, torch.float8_e5m2)
OUT_DTYPES = (torch.bfloat16, torch.float16, torch.float32)
FP8_DTYPES = (torch.float8_e4m3fn, torch.float8_e5m2)


def gemm(
    a: Tensor,
    b: Tensor,
    *,
    out: Tensor | None = None,
    bias: Tensor | None = None,
    activation: Activation = "none",
    residual: Tensor | None = None,
    alpha: float = 1.0,
    beta: float = 1.0,
    scale_a: Tensor | None = None,
    scale_b: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    precision: Precision = "default",
) -> Tensor:
    """activation(alpha * (a * scale_a) @ (b * scale_b) + bias + beta * residual), accumulated in FP32.

    Deterministic: the same shapes and values give the same bits.

    Args:
        a: (..., M, K), bf16/fp16/fp32/fp8; any strides. Copied where TMA cannot read it: rows that are not contiguous
            along K or M, or whose pitch is not a multiple of 16 bytes; FP8 must be contiguous along K.
        b: (K, N), or (..., K, N) with the batch of a; a's dtype, or the other FP8. With `swiglu`, (K, 2 N): the columns
            of the gate, then those of the other factor.
        out: result to write, of the right shape and dtype, any strides; no gradients then.
        bias: (N,), added to every row.
        activation: none, relu, gelu, gelu_tanh, silu, or swiglu: silu(a @ gate) * (a @ up).
        residual: (..., M, N), a's dtype or the output's.
        scale_a, scale_b: FP32 factors of FP8 operands: one for all, or for each row of a (..., M, 1) and column of b
            (1, N), or for blocks of 128, where K > 128: (..., M, K / 128) and (K / 128, N / 128), rounded up.
        out_dtype: bf16, fp16 or fp32; a's by default, bf16 for FP8.
        precision: of FP32 operands. `fp32_emulated`, the default: three FP16 products on tensor cores with sums
            promoted in FP32, at most the error of FP32 FMAs in the order of K; rows that FP16 terms cannot hold are
            computed with FMAs.
            `tf32`: one product with 10 bits of mantissa.
    Returns:
        (..., M, N) in out_dtype.
    Raises:
        ShapeError: shapes or dtypes do not match.
        UsageError: an unknown activation or precision; the memory range of `out` overlaps an operand's, or gradients
            are needed.
        DeviceError: not on a CUDA device, or on different ones.
    Cost: 2 M N K FLOPs (three times that emulated); compute-bound where M, N and K are in the thousands, below some 200
        rows bound by the bytes of b.
    Source: PTX ISA (wgmma, TMA); Ootomo & Yokota 2022, arXiv:2203.03341 (FP32 as FP16 terms).
    """
    dtype = out_dtype or (torch.bfloat16 if a.dtype in FP8_DTYPES else a.dtype)
    if out is None and scale_a is None and scale_b is None and can_skip_dispatcher(a, b, bias, residual):
        repeat = THREAD.repeats.get(call_key(a, b, bias, residual, activation, dtype, precision))
        if repeat is not None and a.get_device() == torch._C._cuda_getDevice():  # such arguments have been checked
            result = repeat.new_result(dtype)
            repeat.launch(a, b, bias, residual, alpha, beta, result)
            return result
    check_operands(a, b, bias, residual, scale_a, scale_b, activation, out_dtype, precision)
    arguments = (a, b, bias, residual, scale_a, scale_b)
    if out is not None:
        epilogue = Epilogue(bias, residual, scale_a, scale_b, activation, alpha, beta)
        return _multiply_into(out, a, b, epilogue, dtype, precision)
    needs_grad = torch.is_grad_enabled() and any(one is not None and one.requires_grad for one in arguments)
    if needs_grad and activation != "none":  # the gradient needs the sums before the activation
        sums = _GEMM(*arguments, "none", alpha, beta, dtype, precision)
        return apply_activation(sums, activation)
    return _GEMM(*arguments, activation, alpha, beta, dtype, precision)


def linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    activation: Activation = "none",
    residual: Tensor | None = None,
    precision: Precision = "default",
) -> Tensor:
    """activation(x @ weight.T + bias + residual); as `torch.nn.functional.linear`.

    Args:
        x: (..., K). weight: (N, K). bias: (N,). residual: (..., N).
    Returns:
        (..., N) in x's dtype. Otherwise as `gemm`.
    """
    require(x.dim() > 0 and weight.dim() == 2, lambda: f"x is {tuple(x.shape)}, weight {tuple(weight.shape)}")
    rows = x if x.dim() > 1 else x.unsqueeze(0)
    residual = residual.unsqueeze(0) if residual is not None and x.dim() == 1 else residual
    result = gemm(rows, weight.mT, bias=bias, activation=activation, residual=residual, precision=precision)
    return result if x.dim() > 1 else result.squeeze(0)


def check_operands(
    a: Tensor,
    b: Tensor,
    bias: Tensor | None,
    residual: Tensor | None,
    scale_a: Tensor | None,
    scale_b: Tensor | None,
    activation: str,
    out_dtype: torch.dtype | None,
    precision: str,
) -> None:
    """Check the arguments of `gemm`.

    Raises:
        ShapeError, UsageError, DeviceError: as `gemm`.
    """
    if activation not in ACTIVATIONS:
        raise UsageError(f"no activation {activation!r}; there are {', '.join(ACTIVATIONS)}")
    if precision not in PRECISIONS:
        raise UsageError(f"no precision {precision!r}; there are {', '.join(PRECISIONS)}")
    require(a.dtype in OPERAND_DTYPES, lambda: f"a is {a.dtype}; it must be bf16, fp16, fp32 or fp8")
    fp8 = a.dtype in FP8_DTYPES
    require(b.dtype == a.dtype or (fp8 and b.dtype in FP8_DTYPES), lambda: f"a is {a.dtype}, b {b.dtype}")
    require(a.dim() >= 2 and b.dim() >= 2, lambda: f"a is {tuple(a.shape)}, b {tuple(b.shape)}: two dimensions or more")
    require(a.shape[-1] == b.shape[-2], lambda: f"a has {a.shape[-1]} columns, b {b.shape[-2]} rows")
    require(
        b.dim() == 2 or a.shape[:-2] == b.shape[:-2],
        lambda: f"a has the batch {tuple(a.shape[:-2])}, b {tuple(b.shape[:-2])}",
    )
    require(out_dtype is None or out_dtype in OUT_DTYPES, lambda: f"out_dtype is {out_dtype}; bf16, fp16 or fp32")
    require(activation != "swiglu" or b.shape[-1] % 2 == 0, lambda: f"b has {b.shape[-1]} columns: not two equal parts")
    plain = bias is None and residual is None and scale_a is None and scale_b is None
    require(activation != "swiglu" or plain, lambda: "swiglu takes no bias, residual or scales")
    n = b.shape[-1] // 2 if activation == "swiglu" else b.shape[-1]
    if bias is not None:
        require(bias.shape == (n,), lambda: f"bias is {tuple(bias.shape)}; it must be ({n},)")
        require(bias.dtype in OUT_DTYPES, lambda: f"bias is {bias.dtype}")
    if residual is not None:
        shape = (*a.shape[:-1], n)
        require(residual.shape == shape, lambda: f"residual is {tuple(residual.shape)}; it must be {shape}")
        require(residual.dtype in OUT_DTYPES, lambda: f"residual is {residual.dtype}")
    require(fp8 or (scale_a is None and scale_b is None), lambda: f"scales are for FP8 operands, a is {a.dtype}")
    blocks_k, blocks_n = -(-a.shape[-1] // BLOCK), -(-n // BLOCK)
    are_blocks = []
    for name, scale, full, blocks in (
        ("scale_a", scale_a, (*a.shape[:-1], 1), (*a.shape[:-1], blocks_k)),
        ("scale_b", scale_b, (1, n), (blocks_k, blocks_n)),
    ):
        are_blocks.append(scale is not None and blocks_k > 1 and scale.shape == blocks)
        if scale is None:
            continue
        if scale.dtype != torch.float32 or not (are_blocks[-1] or scale.numel() == 1 or scale.shape == full):
            expected = f"{full} or {blocks}" if blocks_k > 1 else f"{full}"
            raise ShapeError(f"{name} is {tuple(scale.shape)} {scale.dtype}; it must be one FP32 number or {expected}")
    require(are_blocks[0] == are_blocks[1], lambda: "scale_a and scale_b must both be of blocks, or neither")
    tensors = [one for one in (a, b, bias, residual, scale_a, scale_b) if one is not None]
    if any(one.device != a.device for one in tensors):
        raise DeviceError(f"a is on {a.device}, another argument is not", next="move all arguments to one device")


def _multiply_into(
    out: Tensor, a: Tensor, b: Tensor, epilogue: Epilogue, out_dtype: torch.dtype, precision: str
) -> Tensor:
    shape, residual = result_shape(a, b, epilogue.activation), epilogue.residual
    require(out.shape == shape, lambda: f"out is {tuple(out.shape)}; it must be {shape}")
    require(out.dtype == out_dtype, lambda: f"out is {out.dtype}; it must be {out_dtype}")
    if out.device != a.device:
        raise DeviceError(f"out is on {out.device}, a on {a.device}", next="move all arguments to one device")
    operands = [one for one in (a, b, epilogue.bias, epilogue.scale_a, epilogue.scale_b) if one is not None]
    extra = [] if residual is None else [residual]
    if torch.is_grad_enabled() and any(one.requires_grad for one in (*operands, *extra, out)):
        raise UsageError("out= has no gradients", next="call it under torch.no_grad()")
    if any(_overlap(one, out) for one in operands) or torch._debug_has_internal_overlap(out) == 1:
        raise UsageError("out shares memory with an operand or itself", next="write to other memory")
    if residual is not None and _overlap(residual, out) and not _is_same_view(residual, out):
        raise UsageError("out shares memory with residual but is another view", next="write to other memory")
    return compute(a, b, epilogue, out, precision)


def _overlap(one: Tensor, other: Tensor) -> bool:
    """Whether the memory ranges of two tensors overlap."""
    if one.numel() == 0 or other.numel() == 0:
        return False
    (begin, end), (other_begin, other_end) = _memory_range(one), _memory_range(other)
    return begin < other_end and other_begin < end


def _memory_range(one: Tensor) -> tuple[int, int]:
    last = sum((size - 1) * stride for size, stride in zip(one.shape, one.stride(), strict=True))
    return one.data_ptr(), one.data_ptr() + one.element_size() * (1 + last)


def _is_same_view(one: Tensor, other: Tensor) -> bool:
    return one.data_ptr() == other.data_ptr() and one.stride() == other.stride() and one.dtype == other.dtype


def _compute(a: Tensor, b: Tensor, *rest: Any) -> Tensor:
    *epilogue, out_dtype, precision = rest
    epilogue = Epilogue(*epilogue)
    return compute(a, b, epilogue, a.new_empty(result_shape(a, b, epilogue.activation), dtype=out_dtype), precision)


def _fake(a: Tensor, b: Tensor, *rest: Any) -> Tensor:
    *_, activation, _alpha, _beta, out_dtype, _precision = rest
    return a.new_empty(result_shape(a, b, activation), dtype=out_dtype)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    a, b, bias, residual, scale_a, scale_b, ctx.activation, ctx.alpha, ctx.beta, _, ctx.precision = inputs
    ctx.save_for_backward(a, b)
    ctx.has_scales = scale_a is not None or scale_b is not None
    ctx.bias_dtype = None if bias is None else bias.dtype
    ctx.residual_dtype = None if residual is None else residual.dtype


def _backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
    a, b = ctx.saved_tensors
    if ctx.has_scales or ctx.activation != "none" or a.element_size() == 1:
        raise UsageError("no gradient through FP8 scales or a fused activation", next="differentiate in 16 or 32 bits")
    d = dy.to(a.dtype)
    needs_a, needs_b, needs_bias, needs_residual = ctx.needs_input_grad[:4]
    options = {"alpha": ctx.alpha, "precision": ctx.precision}
    da = gemm(d, b.mT, **options) if needs_a else None
    db = None
    if needs_b:
        rows, left = (d.flatten(0, -2), a.flatten(0, -2)) if b.dim() == 2 else (d, a)
        db = gemm(left.mT, rows, **options)
    dbias = dy.flatten(0, -2).sum(0, dtype=torch.float32).to(ctx.bias_dtype) if needs_bias else None
    dresidual = (ctx.beta * dy).to(ctx.residual_dtype) if needs_residual else None
    return da, db, dbias, dresidual, *(None,) * 7


_GEMM = Operator(
    "gemm(Tensor a, Tensor b, Tensor? bias, Tensor? residual, Tensor? scale_a, Tensor? scale_b, str activation, "
    "float alpha, float beta, ScalarType out_dtype, str precision) -> Tensor",
    _compute,
    _fake,
    _backward,
    _setup_context,
)
