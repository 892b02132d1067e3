"""What a rejected output looks like: the shortcut or the mistake that its error has the shape of."""

from __future__ import annotations

import torch
from torch import Tensor

from kernelwright.verification.accuracy.error import ErrorMetrics

# Within this factor two errors are of one kind.
SIMILAR_FACTOR = 3.0
# An element this many times farther off than the median one is wrong, not imprecise.
OUTLIER_FACTOR = 1000.0
TINY = 1e-300
MAX_EXAMINED = 1 << 22
"""So many elements are asked, the first ones."""


def classify_error(
    got: Tensor, golden: Tensor, error: ErrorMetrics, input_error: ErrorMetrics, dtype: torch.dtype
) -> str:
    """A short noun for the error, or nothing when it has no familiar shape.

    Args:
        got: (n,) in its own dtype, finite.
        golden: (n,) float64, finite.
        error: of `got` against the golden.
        input_error: what rounding the inputs to 11 significant bits costs.
        dtype: of the output.
    """
    if not bool((got != 0).any()):
        return "zeros"
    if got.numel() > 1 and bool((got == got[0]).all()):
        return "a constant"
    return (
        _describe_narrow_output(got, dtype)
        or _describe_outliers(got, golden)
        or _describe_factor(got, golden, error)
        or _describe_arithmetic(error, input_error, dtype)
    )


def _describe_outliers(got: Tensor, golden: Tensor) -> str:
    """Most elements right and some far off: where those are."""
    if got.numel() < 32:
        return ""
    size = golden[:MAX_EXAMINED].abs()
    error = (got[:MAX_EXAMINED].double() - golden[:MAX_EXAMINED]).abs()
    least = 1e-7 * size.max().clamp_min(TINY).item()
    relative = error / size.clamp_min(least)
    # Far off both ways: a small value near a zero crossing is only relatively so, a large one only absolutely.
    wrong = (
        (error > OUTLIER_FACTOR * _median(error, least)) & (relative > OUTLIER_FACTOR * _median(relative, 1e-7))
    ).nonzero()
    wrong = wrong.flatten()
    count = wrong.numel()
    if not count or count > error.numel() // 4:
        return ""
    first, last = int(wrong[0]), int(wrong[-1])
    if count == 1:
        return f"one wrong element among {error.numel():,}"
    if last - first < 2 * count:
        return "a tail that was not written" if last == got.numel() - 1 else f"a wrong tile, elements {first} to {last}"
    return f"{count:,} of {error.numel():,} elements wrong and the rest right"


def _median(values: Tensor, least: float) -> Tensor:
    return values.kthvalue((values.numel() + 1) // 2).values.clamp_min(least)


def _describe_factor(got: Tensor, golden: Tensor, error: ErrorMetrics) -> str:
    """All elements off by one factor, as with a wrong scale or a missing constant."""
    part, whole = got[:MAX_EXAMINED].double(), golden[:MAX_EXAMINED]
    scale = whole.abs().max().clamp_min(TINY)
    part, whole = part / scale, whole / scale
    factor = (part @ whole / (whole @ whole)).item()
    rest = ((part - factor * whole).square().sum() / whole.square().sum()).sqrt().item()
    return f"the right answer times {factor:.6g}" if rest < error["rms"] / 100 and got.numel() > 1 else ""


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
