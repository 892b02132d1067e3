"""Other values for arguments that select, count or mask: integers, booleans, and floating tensors that are constant or
have two values.

What such an argument means follows from its values: ascending offsets stay ascending with the same ends, a
permutation stays one, distinct indices stay distinct, indices stay in their range, a mask gets another density,
counts keep their sum. Whether the reference takes the values is decided by running it; until it takes one, the
proposals are tried in their order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from kernelwright.verification.accuracy.domains import is_ascending
from kernelwright.verification.accuracy.ranges import all_finite

MAX_SAMPLED_RANGE = 1 << 24
"""Width of the largest range of which distinct integers are drawn from a permutation of all of it."""
DOMINANT_SHARE = 15 / 16
"""Share of one value in a skewed tensor of integers."""
DENSITIES, SKEWED_DENSITIES = (0.2, 0.35, 0.65, 0.8), (0.03, 0.97)
MIN_FACTOR, MAX_FACTOR, ZERO_STD = 0.5, 2.0, 0.1
"""A constant is multiplied by a factor between the first two; zeros are replaced by normal values of the third."""


def is_argument(value: Any) -> bool:
    """Whether a leaf is a number, or a tensor that selects, counts, masks or is constant, so that distributions of
    values do not apply to it."""
    if not isinstance(value, Tensor):
        return isinstance(value, (bool, int, float))
    if value.layout != torch.strided or not value.numel() or value.is_complex():
        return False
    if not value.dtype.is_floating_point:
        return True
    if value.dtype.itemsize < 2 or bool(value.isnan().any()):
        return False
    return _two_values(value) is not None


def propose_numbers(example: bool | int | float, generator: torch.Generator) -> Iterator[bool | int | float]:
    """Numbers of the example's type and sign that differ from it."""
    if isinstance(example, bool):
        yield not example
    elif isinstance(example, int):
        near = [example + 1, example - 1, 2 * example, example // 2]
        order = torch.randperm(len(near), generator=generator, device=generator.device).tolist()
        yield from (near[at] for at in order if near[at] != example and (near[at] < 0) == (example < 0))
    elif math.isfinite(example):
        share = torch.rand((), generator=generator, device=generator.device).item()
        yield example * (MIN_FACTOR + (MAX_FACTOR - MIN_FACTOR) * share) if example else ZERO_STD * share


def propose(example: Tensor, generator: torch.Generator, *, skewed: bool) -> Iterator[Tensor]:
    """Values of the example's shape and dtype that differ from it, the most varied first.

    Args:
        example: an argument by `is_argument`; not modified.
        skewed: one value dominates.
    """
    for values in _propose(example, generator, skewed):
        proposed = values.to(example.dtype)
        if not torch.equal(proposed, example):
            yield proposed


def _propose(example: Tensor, generator: torch.Generator, skewed: bool) -> Iterator[Tensor]:
    pair = _two_values(example)
    if example.dtype.is_floating_point:
        assert pair is not None
        yield from _propose_floats(example, pair, generator, skewed)
    elif example.dtype == torch.bool:
        yield from _propose_masks(example, (False, True), generator, skewed)
    elif pair == (0, 1):
        yield from _propose_masks(example, (0, 1), generator, skewed)
        yield from _propose_indices(example, generator, skewed)
    elif pair is not None and pair[0] == pair[1]:
        yield from _propose_counts(example, generator, skewed)
    elif is_ascending(example):
        yield from _propose_ascending(example, generator, skewed)
    else:
        yield from _propose_indices(example, generator, skewed)


def _two_values(value: Tensor) -> tuple[float, float] | None:
    """The smallest and the largest value if there are no others; they are equal in a constant."""
    low, high = value.amin(), value.amax()
    return (low.item(), high.item()) if bool(((value == low) | (value == high)).all()) else None


def _propose_floats(
    example: Tensor, pair: tuple[float, float], generator: torch.Generator, skewed: bool
) -> Iterator[Tensor]:
    low, high = pair
    if low != high:
        yield from _propose_masks(example, pair, generator, skewed)
    elif all_finite(example) and low:
        factor = MIN_FACTOR + (MAX_FACTOR - MIN_FACTOR) * _uniform(example, generator)
        yield example * factor * torch.where(_uniform(example, generator) < 0.5, -1.0, 1.0)
        yield example * factor
    elif all_finite(example):
        yield ZERO_STD * torch.randn(example.shape, generator=generator, device=example.device)
        yield ZERO_STD * _uniform(example, generator)


def _propose_masks(
    example: Tensor, pair: tuple[float, float], generator: torch.Generator, skewed: bool
) -> Iterator[Tensor]:
    """Random masks of another density. Each row keeps one of both values, as long as it has two elements: a row
    without any often has no defined result."""
    low, high = (torch.tensor(value, dtype=example.dtype, device=example.device) for value in pair)
    densities = SKEWED_DENSITIES if skewed else DENSITIES
    order = torch.randperm(len(densities), generator=generator, device=example.device).tolist()
    for density in (densities[at] for at in order):
        uniform = _uniform(example, generator)
        is_high = uniform < density
        if example.dim() and example.shape[-1] > 1:
            is_high |= uniform == uniform.amin(-1, keepdim=True)
            is_high &= uniform != uniform.amax(-1, keepdim=True)
        yield torch.where(is_high, high, low)
    few = _uniform(example, generator) < 1 / 8
    yield torch.where(few, torch.where(example == high, low, high), example)
    yield _shuffled(example, generator)


def _propose_counts(example: Tensor, generator: torch.Generator, skewed: bool) -> Iterator[Tensor]:
    """Counts or lengths that were all equal: others with the same sum, smaller ones, and such that one differs."""
    value, count = int(example.flatten()[0]), example.numel()
    on_host = example.device.type == "cpu"  # an index out of range is an error there, and breaks a CUDA context
    if value > 0 and count > 1 and on_host:
        weights = torch.rand(count, generator=generator) + 0.05
        if skewed:
            weights[int(torch.randint(count, (), generator=generator))] = count
        total = value * count
        shares = (weights / weights.sum() * total).long()
        shares[int(torch.randint(count, (), generator=generator))] += total - shares.sum()
        yield shares.view(example.shape)
    if value > 1:
        yield _integers(1, value, example, generator)
        yield _integers(max(1, value // 2), value, example, generator)
    elif on_host:
        yield _integers(0, 1, example, generator)


def _propose_ascending(example: Tensor, generator: torch.Generator, skewed: bool) -> Iterator[Tensor]:
    """Ascending values with the ends of each row; strictly ascending ones first, where the example is that."""
    strict = bool((example[..., 1:] > example[..., :-1]).all())
    if strict and not skewed:
        if (values := _strictly_ascending(example, generator)) is not None:
            yield values
        yield _moved_by_one(example, generator)
    first, last, size = example[..., :1], example[..., -1:], example.shape[-1]
    spread = (last - first + 1).double()
    uniform = torch.rand((*example.shape[:-1], size), generator=generator, device=example.device, dtype=torch.float64)
    if skewed:  # most of them at one place
        place = torch.rand((*example.shape[:-1], 1), generator=generator, device=example.device, dtype=torch.float64)
        uniform = torch.where(uniform < 0.75, place, uniform)
    values = (first + (uniform * spread).long().to(example.dtype)).clamp(first, last).sort(-1).values
    yield torch.cat([first, values[..., 1:-1], last], -1)
    if strict:
        yield _moved_by_one(example, generator)


def _strictly_ascending(example: Tensor, generator: torch.Generator) -> Tensor | None:
    """Distinct values between the ends of each row; None where they are the only ones or the range is too wide."""
    rows = example.reshape(-1, example.shape[-1])
    drawn = []
    for low, high in zip(rows[:, 0].tolist(), rows[:, -1].tolist(), strict=True):
        inner, width = rows.shape[1] - 2, high - low - 1
        if not inner < width <= MAX_SAMPLED_RANGE:
            return None
        chosen = torch.randperm(width, generator=generator, device=example.device)[:inner].sort().values
        drawn.append(torch.cat([chosen.new_tensor([low]), low + 1 + chosen, chosen.new_tensor([high])]))
    return torch.stack(drawn).view(example.shape)


def _moved_by_one(example: Tensor, generator: torch.Generator) -> Tensor:
    """Inner values one lower where that keeps them above the values before them."""
    moved = example.clone()
    chosen = _uniform(example[..., 1:-1], generator) < 0.5
    free = example[..., 1:-1] - example[..., :-2] > 1
    moved[..., 1:-1] -= (chosen & free).to(example.dtype)
    return moved


def _propose_indices(example: Tensor, generator: torch.Generator, skewed: bool) -> Iterator[Tensor]:
    """Indices, labels or values in the range of the given ones; negative ones, which often have a meaning of their
    own, only as they are."""
    flat = example.flatten()
    low, high, count = int(flat.min()), int(flat.max()), flat.numel()
    if flat.unique().numel() == count > 1:  # distinct indices: writing to one twice is often not defined
        width = high - low + 1
        if low >= 0 and count < width <= MAX_SAMPLED_RANGE:
            chosen = torch.randperm(width, generator=generator, device=example.device)[:count]
            yield (low + chosen).view(example.shape)
        yield _shuffled_all(example, generator)
        return
    position = torch.randint(count, example.shape, generator=generator, device=example.device)
    resampled = flat[position]
    varied = _integers(low, high, example, generator) if low >= 0 else resampled
    if skewed:
        one = flat[int(torch.randint(count, (), generator=generator, device=example.device))]
        everywhere = torch.rand((), generator=generator, device=example.device) < 0.5
        dominant = torch.where(_uniform(example, generator) < DOMINANT_SHARE, one, varied)
        equal = one.expand(example.shape).clone()
        yield from (equal, dominant) if everywhere else (dominant, equal)
        return
    yield varied
    yield resampled
    yield _shuffled(example, generator)


def _integers(low: int, high: int, example: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randint(low, high + 1, example.shape, generator=generator, device=example.device)


def _uniform(example: Tensor, generator: torch.Generator) -> Tensor:
    return torch.rand(example.shape, generator=generator, device=example.device)


def _shuffled(example: Tensor, generator: torch.Generator) -> Tensor:
    """In another order along the first dimension."""
    if not example.dim():
        return example
    return example[torch.randperm(example.shape[0], generator=generator, device=example.device)]


def _shuffled_all(example: Tensor, generator: torch.Generator) -> Tensor:
    order = torch.randperm(example.numel(), generator=generator, device=example.device)
    return example.flatten()[order].view(example.shape)
