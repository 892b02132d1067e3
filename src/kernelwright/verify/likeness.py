"""What a rejected output looks like: the shortcut or the mistake that its error has the shape of."""

from __future__ import annotations

import torch
from torch import Tensor

from kernelwright.verify.error import CHUNK, Profile

# Within this factor two errors are of one kind.
ALIKE = 3.0
# An element this many times farther off than the median one is wrong, not imprecise.
OUTLYING = 1000.0


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
    return _few_wrong(got, golden) or _factor(got, golden, error) or _precision(got, error, inputs, dtype)


def _few_wrong(got: Tensor, golden: Tensor) -> str:
    """Most elements right and some far off: where those are."""
    if got.numel() < 32:
        return ""
    error = (got[:CHUNK].double() - golden[:CHUNK]).abs()
    usual = error.kthvalue(max(1, error.numel() // 2)).values
    usual = torch.maximum(usual, 1e-7 * golden[:CHUNK].abs().max())
    wrong = (error > OUTLYING * usual).nonzero().flatten()
    count = wrong.numel()
    if not count or count > error.numel() // 4:
        return ""
    first, last = int(wrong[0]), int(wrong[-1])
    if count == 1:
        return f"one wrong element among {error.numel():,}"
    if last - first < 2 * count:
        return "a tail that was not written" if last == got.numel() - 1 else f"a wrong tile, elements {first} to {last}"
    return f"{count:,} of {error.numel():,} elements wrong and the rest right"


def _factor(got: Tensor, golden: Tensor, error: Profile) -> str:
    """All elements off by one factor, as with a wrong scale or a missing constant."""
    part, whole = got[:CHUNK].double(), golden[:CHUNK]
    scale = whole.abs().max().clamp_min(1e-300)
    part, whole = part / scale, whole / scale
    factor = (part @ whole / (whole @ whole)).item()
    rest = ((part - factor * whole).square().sum() / whole.square().sum()).sqrt().item()
    return f"the right answer times {factor:.6g}" if rest < error["rms"] / 100 and got.numel() > 1 else ""


def _precision(got: Tensor, error: Profile, inputs: Profile, dtype: torch.dtype) -> str:
    if dtype == torch.float32:
        for narrow, name in ((torch.bfloat16, "bfloat16"), (torch.float16, "half-precision")):
            if bool((got == got.to(narrow).to(dtype)).all()):
                return f"{name} output"
        if _alike(error["rms"], inputs["rms"]):
            return "half-precision arithmetic (FP16 or TF32)"
        if _alike(error["rms"], 8 * inputs["rms"]):
            return "bfloat16 arithmetic"
    return ""


def _alike(one: float, other: float) -> bool:
    return other > 0 and 1 / ALIKE < one / other < ALIKE
