"""Changes of one element or one row of one tensor, everything else being equal bit for bit: a result that is kept by a
part of the values is wrong after one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from kernelwright.verification.accuracy.domains import Domain, is_ascending
from kernelwright.verification.accuracy.ranges import all_finite, max_abs

FACTORS = (8.0, -8.0, 128.0, -128.0, 4096.0)
"""New values in root mean squares of the tensor, in the order in which they are tried."""
MIN_EFFECT_EPS = {2: 16.0, 4: 4096.0, 8: float(1 << 20)}
"""By item size in bytes: the smallest effect of a change, in eps of the dtype, relative to the largest output. Several
times more than any error budget allows."""
SMALL_CHANGE, SMALL_SHARE = 0.05, 1 / 2
"""A small change, in root mean squares of the tensor, and the share of the changes of which it is tried first."""
ROW_SHARE = 1 / 4
"""Share of the changes that replace a whole row."""


def is_changeable(value: Tensor) -> bool:
    """Whether one element of a tensor can be changed alone."""
    return (
        value.layout == torch.strided
        and not value.is_complex()
        and value.numel() > 1
        and 0 not in value.stride()
        and not (value.dtype.is_floating_point and value.dtype.itemsize < 2)
    )


def draw_place(shape: torch.Size, generator: torch.Generator, place: int, orders: Sequence[Sequence[int]]) -> int:
    """A flat index in a part of each dimension, such that all places together have one in every part.

    Args:
        place: number of this place.
        orders: for each dimension, the parts of the places.
    """
    shares = torch.rand(len(shape), generator=generator, device=generator.device).tolist()
    at = 0
    for size, order, share in zip(shape, orders, shares, strict=True):
        at = at * size + min(size - 1, int((order[place] + share) / len(order) * size))
    return at


def changed_values(value: Tensor, generator: torch.Generator, at: int) -> Iterator[Tensor]:
    """Copies of a tensor in which one element, or one row, has other values; those with a small change first.

    Args:
        value: a tensor by `is_changeable`; not modified.
        at: flat index of the element, or of one in the row.
    """
    if not value.dtype.is_floating_point:
        yield from _change_integer(value, at, generator)
        return
    if not all_finite(value):
        return
    domain = Domain.of(value.detach())
    by_row = value.dim() > 1 and _random(generator) < ROW_SHARE
    yield from _change_floats(value, domain, at, generator, by_row=by_row)
    if by_row:
        yield from _change_floats(value, domain, at, generator, by_row=False)


def _change_floats(
    value: Tensor, domain: Domain, at: int, generator: torch.Generator, *, by_row: bool
) -> Iterator[Tensor]:
    index = torch.unravel_index(torch.tensor(at), value.shape)
    place = tuple(int(one) for one in (index[:1] if by_row else index))
    old = value[place]
    bounded = 0.9 < max(abs(domain.low), abs(domain.high)) <= 1
    if domain.rows_sum_to_one or (domain.ascending and domain.low < domain.high):
        return
    factors = (SMALL_CHANGE, *FACTORS) if _random(generator) < SMALL_SHARE else FACTORS
    for factor in factors:
        scale = factor * (domain.rms or 1.0)
        size = 0.75 + 0.5 * torch.rand(old.shape, generator=generator, device=old.device)
        new = scale * size.double()
        if factor == SMALL_CHANGE:
            new = old.double() + torch.where(old.double() < (domain.low + domain.high) / 2, new, -new)
        if domain.low >= 0 and domain.high > 0:
            new = new.abs()
        elif domain.high <= 0 and domain.low < 0:
            new = -new.abs()
        if bounded and factor != SMALL_CHANGE:  # the farther of the bounds
            new = torch.where(old.double() > (domain.low + domain.high) / 2, domain.low, domain.high).double()
        changed = value.detach().clone()
        changed[place] = new.to(value.dtype)
        if all_finite(changed) and not torch.equal(changed, value):
            yield changed


def _change_integer(value: Tensor, at: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Another value that the tensor has; adjacent ones; for ascending ones a step; for distinct ones a swap."""
    changed = value.clone()
    flat, given = changed.view(-1) if changed.is_contiguous() else changed.flatten(), value.flatten()
    if not changed.is_contiguous():
        changed = flat.view(value.shape)
    if value.dtype == torch.bool:
        flat[at] = ~flat[at]
        yield changed
        return
    if is_ascending(value):
        last = value.shape[-1] - 1
        inner = at if 0 < at % (last + 1) < last else at - at % (last + 1) + 1
        can_rise, can_fall = given[inner + 1] > given[inner], given[inner] > given[inner - 1]
        flat[inner] += 1 if bool(can_rise) else -1 if bool(can_fall) else 0
        yield changed
        return
    other = int(torch.randint(given.numel(), (), generator=generator, device=value.device))
    if given.unique().numel() == given.numel():
        flat[at], flat[other] = given[other], given[at]
        yield changed
        return
    different = given[given != given[at]]
    if different.numel():
        flat[at] = different[int(torch.randint(different.numel(), (), generator=generator, device=value.device))]
        yield changed


def has_effect(before: list[Tensor], after: list[Tensor]) -> bool:
    """Whether an output differs by more than any error budget allows."""
    return len(before) != len(after) or any(map(_differs, before, after))


def _differs(before: Tensor, after: Tensor) -> bool:
    if before.shape != after.shape:
        return True
    if not before.numel():
        return False
    if not before.dtype.is_floating_point:
        return not torch.equal(before, after)
    if not (all_finite(before) and all_finite(after)):
        return False
    least = MIN_EFFECT_EPS.get(before.dtype.itemsize, 16.0) * torch.finfo(before.dtype).eps
    return max_abs(after - before) > least * max(max_abs(before), max_abs(after))


def _random(generator: torch.Generator) -> float:
    return float(torch.rand((), generator=generator, device=generator.device))
