"""Values that a problem's own inputs seldom contain: NaN, infinities, equal and nearly equal numbers.

NaN and infinities may spread: a candidate that transforms, splits or subtracts its inputs returns NaN in other places
too. They must not be lost: where the reference's output is not finite, the candidate's must not be either.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from kernelwright.verification.accuracy.expected import Expected

MAX_SPECIAL_ROWS_SHARE = 1 / 4
TIED_SHARE, NEARLY_TIED_SHARE, LEVEL_ROWS_SHARE = 1 / 2, 1 / 8, 1 / 8
"""Shares of the elements of a row that equal another one of it, or are next to one; share of rows of equal numbers."""


def takes_special_values(value: Tensor) -> bool:
    """Whether NaN and infinities can be written into a tensor: a floating one of several different values."""
    return value.layout == torch.strided and value.dtype.is_floating_point and value.dtype.itemsize >= 2 and (
        value.numel() > 1 and 0 not in value.stride()
    )  # fmt: skip


def insert_special(value: Tensor, special: float, generator: torch.Generator) -> None:
    """Write a NaN or an infinity into one element of some rows, in place.

    Infinities go into the second half of a row: sums that are rescaled by a running maximum are not defined before
    the first finite value.
    """
    rows = value.shape[0] if value.dim() > 1 else 1
    count = max(1, int(rows * MAX_SPECIAL_ROWS_SHARE * _random(generator)))
    for row in torch.randperm(rows, generator=generator, device=value.device)[:count].tolist():
        target = value[row] if value.dim() > 1 else value
        position = [int(size * _random(generator)) for size in target.shape]
        if math.isinf(special):
            size = target.shape[-1]
            position[-1] = size // 2 + int((size - size // 2) * _random(generator))
        target[tuple(position)] = special


def insert_ties(value: Tensor, generator: torch.Generator) -> None:
    """Make elements of each row equal to other elements of it or the next number above them, and some rows level, in
    place."""
    device, size = value.device, value.shape[-1]

    def uniform(shape: tuple[int, ...]) -> Tensor:
        return torch.rand(shape, generator=generator, device=device)

    source = torch.randint(size, value.shape, generator=generator, device=device)
    others = value.gather(-1, source)
    above = torch.nextafter(others.float(), torch.full_like(others, math.inf, dtype=torch.float32)).to(value.dtype)
    if value.dtype == torch.float32 or value.dtype == torch.float64:
        others = torch.where(uniform(tuple(value.shape)) < NEARLY_TIED_SHARE / TIED_SHARE, above, others)
    tied = torch.where(uniform(tuple(value.shape)) < TIED_SHARE, others, value)
    if value.dim() > 1:
        level = uniform((*value.shape[:-1], 1)) < LEVEL_ROWS_SHARE
        tied = torch.where(level, tied[..., :1], tied)
    value.copy_(tied)


def allow_spread(got: list[Tensor], expected: Expected) -> list[Tensor]:
    """A candidate's outputs with the reference's values where only the candidate's are NaN, or where it returned NaN
    instead of an infinity."""
    return [_allow_spread(*pair) for pair in zip(got, expected.reference, strict=False)] + got[
        len(expected.reference) :
    ]


def _allow_spread(got: Tensor, reference: Tensor) -> Tensor:
    if not reference.dtype.is_floating_point or (got.shape, got.dtype) != (reference.shape, reference.dtype):
        return got
    return torch.where(got.isnan(), reference, got)


def is_defined(expected: Expected) -> bool:
    """Whether the result for these values is defined: the same places are NaN and infinite in both precisions, and
    integers are the same."""
    for native, golden in zip(expected.reference, expected.golden, strict=True):
        if native.shape != golden.shape:
            return False
        if native.is_complex():
            return False
        wide = golden.to(native.dtype)
        if not native.dtype.is_floating_point:
            if not torch.equal(native, wide):
                return False
        elif not torch.equal(native.isnan(), wide.isnan()) or not torch.equal(
            native.where(native.isinf(), 0.0), wide.where(wide.isinf(), 0.0)
        ):
            return False
    return True


def _random(generator: torch.Generator) -> float:
    return float(torch.rand((), generator=generator, device=generator.device))
