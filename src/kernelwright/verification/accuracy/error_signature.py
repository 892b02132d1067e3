"""What a rejected output looks like: the shortcut or the mistake that its error has the shape of."""

from __future__ import annotations

import torch
from torch import Tensor

from kernelwright.verification.accuracy.error import Profile

# Within this factor two errors are of one kind.
ALIKE = 3.0
# An element this many times farther off than the median one is wrong, not imprecise.
OUTLYING = 1000.0
TINY = 1e-300
EXAMINED = 1 << 22
"""So many elements are asked, the first ones."""


def looks_like(got: Tensor, golden: Tensor, error: Profile, inputs: Profile, dtype: torch.dtype) -> str:
    """A short noun for the error, or nothing when it has no familiar shape.

    Args:
        got: (n,) in its own dtype, finite.
        golden: (n,) float64, finite.
        error: of `got` against the golden.
        inputs: what rounding the inputs to 11 significant bits costs.
        dtype: of the output.
    """
    if not bool((got != 0).any()):
        return "zeros"
    if got.numel() > 1 and bool((got == got[0]).all()):
        return "a constant"
    return (
        _narrow_output(got, dtype)
        or _few_wrong(got, golden)
        or _factor(got, golden, error)
        or _arithmetic(error, inputs, dtype)
    )


def _few_wrong(got: Tensor, golden: Tensor) -> str:
    """Most elements right and some far off: where those are."""
    if got.numel() < 32:
        return ""
    size = golden[:EXAMINED].abs()
    error = (got[:EXAMINED].double() - golden[:EXAMINED]).abs()
    least = 1e-7 * size.max().clamp_min(TINY).item()
    relative = error / size.clamp_min(least)
    # Far off both ways: a small value near a zero crossing is only relatively so, a large one only absolutely.
    wrong = ((error > OUTLYING * _median(error, least)) & (relative > OUTLYING * _median(relative, 1e-7))).nonzero()
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


def _factor(got: Tensor, golden: Tensor, error: Profile) -> str:
    """All elements off by one factor, as with a wrong scale or a missing constant."""
    part, whole = got[:EXAMINED].double(), golden[:EXAMINED]
    scale = whole.abs().max().clamp_min(TINY)
    part, whole = part / scale, whole / scale
    factor = (part @ whole / (whole @ whole)).item()
    rest = ((part - factor * whole).square().sum() / whole.square().sum()).sqrt().item()
    return f"the right answer times {factor:.6g}" if rest < error["rms"] / 100 and got.numel() > 1 else ""


def _narrow_output(got: Tensor, dtype: torch.dtype) -> str:
    for narrow, name in ((torch.bfloat16, "bfloat16"), (torch.float16, "half-precision")):
        if dtype == torch.float32 and bool((got == got.to(narrow).to(dtype)).all()):
            return f"{name} output"
    return ""


def _arithmetic(error: Profile, inputs: Profile, dtype: torch.dtype) -> str:
    if dtype == torch.float32 and _alike(error["rms"], inputs["rms"]):
        return "half-precision arithmetic (FP16 or TF32)"
    return "bfloat16 arithmetic" if dtype == torch.float32 and _alike(error["rms"], 8 * inputs["rms"]) else ""


def _alike(one: float, other: float) -> bool:
    return other > 0 and 1 / ALIKE < one / other < ALIKE
