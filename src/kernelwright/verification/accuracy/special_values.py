"""Values that a problem's own inputs seldom contain: NaN, infinities, equal and nearly equal numbers.

NaN and infinities may spread: a candidate that transforms, splits or subtracts its inputs returns NaN in other places
too. They must not be lost: where the reference's output is not finite, the candidate's must not be either.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from kernelwright.verification.accuracy.expected import Expected

MAX_SPECIAL_ROWS_SHARE = 1 / 4
MIN_EFFECT = 2.0**-7
"""Smallest effect of a number on an output that depends on it, relative to the largest output."""
ZERO_ROWS_SHARE = 1 / 16
TIED_SHARE, NEARLY_TIED_SHARE, LEVEL_ROWS_SHARE = 1 / 2, 1 / 8, 1 / 8
"""Shares of the elements of a row that equal another one of it, or are next to one; share of rows of equal numbers."""


def takes_special_values(value: Tensor) -> bool:
    """Whether NaN and infinities can be written into a tensor: a floating one of several different values."""
    return value.layout == torch.strided and value.dtype.is_floating_point and value.dtype.itemsize >= 2 and (
        value.numel() > 1 and 0 not in value.stride()
    )  # fmt: skip


def draw_places(value: Tensor, generator: torch.Generator, *, late: bool) -> list[tuple[int, ...]]:
    """The indices of one element in each of some rows.

    Args:
        late: in the second half of a row: sums that are rescaled by a running maximum are not defined before the
            first finite value, so that infinities cannot come first.
    """
    rows = value.shape[0] if value.dim() > 1 else 1
    count = max(1, int(rows * MAX_SPECIAL_ROWS_SHARE * _random(generator)))
    places: list[tuple[int, ...]] = []
    for row in torch.randperm(rows, generator=generator, device=value.device)[:count].tolist():
        shape = value.shape[1:] if value.dim() > 1 else value.shape
        place = [int(size * _random(generator)) for size in shape]
        if late:
            place[-1] = shape[-1] // 2 + int((shape[-1] - shape[-1] // 2) * _random(generator))
        places.append((row, *place) if value.dim() > 1 else tuple(place))
    return places


def write_at(value: Tensor, places: Sequence[tuple[int, ...]], number: float) -> None:
    """Write a number at these places of a tensor, in place."""
    for place in places:
        value[place] = number


def find_effect(before: list[Tensor], *others: list[Tensor]) -> list[Tensor]:
    """Masks of the outputs that differ in one of several other runs by more than rounding, relative to the largest
    output and to their own size."""
    masks = [torch.zeros(value.shape, dtype=torch.bool, device=value.device) for value in before]
    for values in others:
        for at, (one, other) in enumerate(zip(before, values, strict=True)):
            if one.shape != other.shape or not one.dtype.is_floating_point or not one.numel():
                continue
            difference, size = (other - one).abs(), torch.maximum(one.abs(), other.abs())
            masks[at] |= (difference > MIN_EFFECT * size.max()) & (difference > MIN_EFFECT * size)
    return masks


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


def insert_zero_rows(value: Tensor, generator: torch.Generator) -> None:
    """Make some rows zero, at least one of them, in place."""
    chosen = torch.rand((*value.shape[:-1], 1), generator=generator, device=value.device)
    value.masked_fill_(chosen <= max(ZERO_ROWS_SHARE, chosen.min().item()), 0.0)


def allow_spread(
    got: list[Tensor], expected: Expected, depends: Sequence[Tensor], *, keeps_numbers: bool
) -> list[Tensor]:
    """A candidate's outputs with the reference's values where the result is not defined: where it returned NaN
    or the reference is not finite although the output does not depend on the special values.

    Args:
        depends: for each output a mask of those that do.
        keeps_numbers: NaN counts where the reference returns a number although the output does.
    """
    if len(got) != len(expected.reference):
        return got
    return [_allow_spread(*each, keeps_numbers) for each in zip(got, expected.reference, depends, strict=True)]


def _allow_spread(got: Tensor, reference: Tensor, depends: Tensor, keeps_numbers: bool) -> Tensor:
    if not reference.dtype.is_floating_point or (got.shape, got.dtype) != (reference.shape, reference.dtype):
        return got
    if depends.shape != reference.shape:  # it depends on values
        return got
    spread = got.isnan() & ~(depends & reference.isfinite()) if keeps_numbers else got.isnan()
    return torch.where(spread | (~reference.isfinite() & ~depends), reference, got)


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
