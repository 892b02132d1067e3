"""Classifies a rejected output: the reduced precision or the bug that matches its error."""

from __future__ import annotations

import torch
from torch import Tensor

from kernelwright.verification.accuracy.error import ErrorMetrics

# Within this factor two errors count as similar.
SIMILAR_FACTOR = 3.0
# An element with an error this many times the median is wrong, not imprecise.
OUTLIER_FACTOR = 1000.0
TINY = 1e-300
MAX_EXAMINED = 1 << 22
"""At most so many consecutive elements are examined, with the worst one in the middle."""


def classify_error(
    got: Tensor, golden: Tensor, error: ErrorMetrics, input_error: ErrorMetrics, dtype: torch.dtype
) -> str:
    """A short noun for the error, or an empty string if it matches no known pattern.

    Args:
        got: (n,) in its own dtype, finite.
        golden: (n,) float64, finite.
        error: error of `got` against the golden.
        input_error: error from rounding the inputs to 11 significant bits.
        dtype: dtype of the output.
    """
    if not bool((got != 0).any()):
        return "zeros"
    if got.numel() > 1 and bool((got == got[0]).all()):
        return "a constant"
    first = max(0, min(error.worst_index - MAX_EXAMINED // 2, got.numel() - MAX_EXAMINED))
    part = slice(first, first + MAX_EXAMINED)
    return (
        _describe_narrow_output(got, dtype)
        or _describe_outliers(got[part], golden[part], first, got.numel())
        or _describe_factor(got[part], golden[part], error)
        or _describe_arithmetic(error, input_error, dtype)
    )


def _describe_outliers(got: Tensor, golden: Tensor, offset: int, total: int) -> str:
    """Position of the wrong elements where most are right and some have a large error.

    Args:
        offset: position of the first one among `total`.
    """
    if got.numel() < 32:
        return ""
    size = golden.abs()
    error = (got.double() - golden).abs()
    min_size = 1e-7 * size.max().clamp_min(TINY).item()
    relative = error / size.clamp_min(min_size)
    # Both errors must be large: near a zero crossing only the relative error is, at a large value only the absolute.
    wrong_indices = (
        (error > OUTLIER_FACTOR * _median(error, min_size)) & (relative > OUTLIER_FACTOR * _median(relative, 1e-7))
    ).nonzero()
    wrong_indices = wrong_indices.flatten()
    count = wrong_indices.numel()
    if not count or count > error.numel() // 4:
        return ""
    first, last = offset + int(wrong_indices[0]), offset + int(wrong_indices[-1])
    if count == 1:
        return f"one wrong element among {error.numel():,}"
    if last - first < 2 * count:
        return "a tail that was not written" if last == total - 1 else f"a wrong tile, elements {first} to {last}"
    return f"{count:,} of {error.numel():,} elements wrong and the rest right"


def _median(values: Tensor, least: float) -> Tensor:
    return values.kthvalue((values.numel() + 1) // 2).values.clamp_min(least)


def _describe_factor(got: Tensor, golden: Tensor, error: ErrorMetrics) -> str:
    """All elements wrong by one factor, as with a wrong scale or a missing constant."""
    got_scaled, golden_scaled = got.double(), golden
    scale = golden_scaled.abs().max().clamp_min(TINY)
    got_scaled, golden_scaled = got_scaled / scale, golden_scaled / scale
    factor = (got_scaled @ golden_scaled / (golden_scaled @ golden_scaled)).item()
    residual = ((got_scaled - factor * golden_scaled).square().sum() / golden_scaled.square().sum()).sqrt().item()
    return f"the expected values times {factor:.6g}" if residual < error["rms"] / 100 and got.numel() > 1 else ""


def _describe_narrow_output(got: Tensor, dtype: torch.dtype) -> str:
    for narrow, name in ((torch.bfloat16, "bfloat16"), (torch.float16, "half-precision")):
        if dtype == torch.float32 and bool((got == got.to(narrow).to(dtype)).all()):
            return f"{name} output"
    return ""


def _describe_arithmetic(error: ErrorMetrics, inputs: ErrorMetrics, dtype: torch.dtype) -> str:
    if dtype == torch.float32 and _is_similar(error["rms"], inputs["rms"]):
        return "half-precision arithmetic (FP16 or TF32)"
    return "bfloat16 arithmetic" if dtype == torch.float32 and _is_similar(error["rms"], 8 * inputs["rms"]) else ""


def _is_similar(one: float, other: float) -> bool:
    return other > 0 and 1 / SIMILAR_FACTOR < one / other < SIMILAR_FACTOR
