"""Distributions of inputs. Each exposes errors that others hide: errors of a positive sum average out, small scales
hide overflow, and normal values hide what only outliers break.

Every redrawn tensor keeps its domain: positive values stay positive and bounded values bounded, rows that sum to one
still do, masks, constants and scalars are unchanged.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from kernelwright.problems.problem import Args, clone_inputs, tensor_leaves
from kernelwright.verification.accuracy.domains import Domain, is_ascending, parts_of
from kernelwright.verification.accuracy.ranges import all_finite, max_abs

Sampler = Callable[[tuple[int, ...], torch.Generator], Tensor]
SEED_STRIDE = 0x9E3779B9
LONG_ROW = 4096
CHANNEL_LEVELS, MIN_LEVELS, MAX_SETS_PER_DISTRIBUTION = 4, 64, 8
"""Levels of the channels in one set; number of levels over which a verdict no longer depends on chance; maximum
number of sets for that."""
MAX_REDRAWN_ELEMENTS = 1 << 22
"""Elements in all sets of one distribution together, where one set has too few levels."""


@dataclass(frozen=True)
class Distribution:
    """A distribution of input values.

    Attributes:
        same_sign: rounding errors average out in sums, so a wider budget applies.
        sampler: generates the values; None keeps the problem's own.
        sparse: few values decide every sum, so the narrowest budget applies.
        single_tensor: one of the largest tensors is redrawn, the others stay as given.
        range_end: moves values half of the way to an end of the dtype's range: 1 the upper, -1 the lower, 0 none.
            Only for programs whose outputs scale with their inputs.
        coarse: only large errors count, not the last digits.
        hint: what an error with this distribution indicates.
        count_levels: number of levels in one tensor of a shape, for distributions of levels; a single level may be a
            number whose sums are exact.
    """

    name: str
    same_sign: bool
    sampler: Sampler | None
    sparse: bool = False
    single_tensor: bool = False
    range_end: int = 0
    coarse: bool = False
    hint: str = ""
    count_levels: Callable[[tuple[int, ...]], int] | None = None

    def draw(self, inputs: Args, seed: int) -> Args:
        """The same tree with floating tensors redrawn at the example's scale; strides and shared storage are kept.

        Args:
            inputs: example (args, kwargs), not modified.
            seed: of a generator on each tensor's own device.
        """
        fresh = clone_inputs(inputs)
        if self.sampler is None:
            return fresh
        with torch.no_grad():
            for position, tensor in self._select_tensors(tensor_leaves(fresh), seed):
                _redraw(tensor, self.sampler, seed + SEED_STRIDE * position, self.range_end)
        return fresh

    def count_sets(self, inputs: Args) -> int:
        """Number of sets of this distribution that these inputs need."""
        sizes = [tuple(one.shape) for one in tensor_leaves(inputs) if one.dtype.is_floating_point and one.numel()]
        if self.count_levels is None or not sizes:
            return 1
        largest = max(sizes, key=math.prod)
        affordable = min(MAX_SETS_PER_DISTRIBUTION, MAX_REDRAWN_ELEMENTS // math.prod(largest))
        return max(1, min(affordable, -(-MIN_LEVELS // self.count_levels(largest))))

    def _select_tensors(self, tensors: list[Tensor], seed: int) -> list[tuple[int, Tensor]]:
        """The tensors to redraw, with their positions."""
        numbered = list(enumerate(tensors))
        floating = [(at, one) for at, one in numbered if one.dtype.is_floating_point]
        if not self.single_tensor or not floating:
            return numbered
        most = max(one.numel() for _, one in floating)
        largest = [pair for pair in floating if pair[1].numel() == most]
        return [largest[seed % len(largest)]]


def _normal(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    return torch.randn(shape, generator=generator, device=generator.device)


def _heavy_tailed(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Signed log-normal, two octaves wide: a few values dominate each sum, so that their errors cannot average out."""
    size = torch.exp2(2.0 * _normal(shape, generator).clamp_(-4, 4)) / 7
    return torch.copysign(size, _normal(shape, generator))


def _biased_low_bits(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Normal values whose low bits all round the same way, so that the relative error of a long sum is that of each
    term.

    The lowest 13 of the 23 stored bits are 0 1111 1011 11xx: just under half a unit at 11 significant bits. In every
    fourth value the three bits above them are 011: just under half a unit at 8 bits, and the remainder of two BF16
    parts is just under half a unit again. If every value had these, a correct FP32 sum 2^16 times larger than its
    terms would lose as much.
    """
    bits = _normal(shape, generator).view(torch.int32)
    eight = (bits & 0x30) == 0
    bits = (bits & ~0x1FFF) | 0xFBC | (bits & 0x3)
    return torch.where(eight, (bits & ~0xE000) | 0x6000, bits).view(torch.float32)


def _outliers(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Normal, with one value in 2048 about a hundred times as large: exp() of the first one overflows FP32."""
    values = _normal(shape, generator)
    uniform = torch.rand(shape, generator=generator, device=generator.device)
    chosen = uniform < 1 / 2048
    values = torch.where(chosen, 100 * values, values)
    return torch.where(uniform == uniform.min(), 100 + values.abs(), values)


def _uneven_rows(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Normal, each row times a power of two from 2^-12 to 4: small rows expose a missing epsilon."""
    values = _normal(shape, generator)
    rows = torch.randint(-12, 3, (*shape[:-1], 1), generator=generator, device=generator.device)
    return values * torch.exp2(rows.float()) if len(shape) > 1 else values


def _sparse(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """About eight large values in each row, together as large as a normal row, with small values between them.

    They decide every sum: errors of the inputs cannot average out, and every order of adding is nearly exact. One of
    them is positive, so that they decide sums of exp() too. The values between are 1/16 of a normal value, not zero:
    numbers that are equal, or near the last place of a sum, all round the same way when added one by one. In long
    rows they are 2^-60, too small to affect a sum, with up to a thousand normal values among them, which expose
    errors of element-wise functions.
    """
    between, normal = (2.0**-4, 0.0) if shape[-1] <= LONG_ROW else (2.0**-60, min(1 / 128, 1024 / shape[-1]))
    share = min(0.5, 8 / shape[-1])
    size = 2.0 ** round(math.log2(1 / share) / 2)
    uniform = torch.rand(shape, generator=generator, device=generator.device)
    values = _biased_low_bits(shape, generator)
    first = uniform == uniform.amin(-1, keepdim=True)
    scale = torch.where(uniform < share, size, torch.where(uniform < share + normal, 1.0, between))
    return torch.where(first, size * (1 + values.abs()), values * scale)


def _uniform(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    return torch.rand(shape, generator=generator, device=generator.device)


def _offset(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    return 2.0 + _normal(shape, generator).clamp_(-4, 4) / 32


def _level_rows(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Rows of equal numbers, and rows whose mean is hundreds or thousands of times their standard deviation:
    subtracting the mean must not leave rounding errors. Levels are from 1/2 to 2^12."""
    return _level((*shape[:-1], 1), shape, generator)


def _count_rows(shape: tuple[int, ...]) -> int:
    return math.prod(shape[:-1])


def _level_channels(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Levels along the second of three or more dimensions, in four levels, so that groups of channels are level too;
    along the columns of two dimensions."""
    if len(shape) < 3:
        return _level((1, *shape[1:]), shape, generator)
    runs = [1, min(shape[1], CHANNEL_LEVELS), *(1,) * (len(shape) - 2)]
    narrow = _level(tuple(runs), (shape[0], runs[1], *shape[2:]), generator)
    return narrow.repeat_interleave(-(-shape[1] // runs[1]), 1).narrow(1, 0, shape[1])


def _count_channel_levels(shape: tuple[int, ...]) -> int:
    return min(shape[1], CHANNEL_LEVELS) if len(shape) > 2 else math.prod(shape[1:])


def _level(levels: tuple[int, ...], shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    device = generator.device
    power = torch.randint(0, 13, levels, generator=generator, device=device)
    level = torch.exp2(power.float()) * (0.5 + torch.rand(levels, generator=generator, device=device))
    kind = torch.arange(math.prod(levels), device=device).view(levels) % 4
    spread = level * torch.tensor([0.0, 2.0**-12, 0.0, 2.0**-8], device=device)[kind]
    return level + spread * _normal(shape, generator)


CANCELLATION_HINT = "cancellation in the mean subtraction"
# The most sensitive ones first, for runs that stop early.
DISTRIBUTIONS: tuple[Distribution, ...] = (
    Distribution("as given", False, None),
    Distribution("sparse", False, _sparse, sparse=True),
    Distribution("offset", True, _offset),
    Distribution(
        "level rows",
        True,
        _level_rows,
        single_tensor=True,
        coarse=True,
        hint=CANCELLATION_HINT,
        count_levels=_count_rows,
    ),
    Distribution("outliers", False, _outliers),
    Distribution("uneven rows", False, _uneven_rows),
    Distribution("biased low bits", False, _biased_low_bits),
    Distribution("heavy-tailed", False, _heavy_tailed),
    Distribution("normal", False, _normal),
    Distribution(
        "level channels",
        True,
        _level_channels,
        single_tensor=True,
        coarse=True,
        hint=CANCELLATION_HINT,
        count_levels=_count_channel_levels,
    ),
    Distribution("near overflow", False, _normal, single_tensor=True, range_end=1),
    Distribution("near underflow", False, _normal, single_tensor=True, range_end=-1),
    Distribution("uniform", True, _uniform),
)


TIMED_DISTRIBUTIONS = tuple(
    one for one in DISTRIBUTIONS if one.sampler and not (one.same_sign or one.sparse or one.range_end)
)
"""Distributions with the rule of the problem's own values, of which rows are mixed into the inputs of timed calls."""
MIXED = Distribution("as given, with rows of others", False, _normal)
"""The problem's own values with some rows from `TIMED_DISTRIBUTIONS`, as in timed calls."""
MAX_MIXED_BLOCKS, MIXED_BLOCK_SHARE = 4, 1 / 16


def mix_blocks(tensor: Tensor, domain: Domain, seed: int) -> None:
    """Redraw up to `MAX_MIXED_BLOCKS` random blocks of rows of a tensor, or of elements of a vector, in place, each
    from one of `TIMED_DISTRIBUTIONS`.

    Args:
        domain: of the tensor's values.
    """
    target = _non_overlapping_view(tensor)
    if target is None or target.dim() == 0 or target.shape[0] < 2:
        return
    generator = torch.Generator(tensor.device).manual_seed(seed % (1 << 63))
    rows = target.shape[0]
    block = max(1, int(rows * MIXED_BLOCK_SHARE))
    numbers = torch.rand((MAX_MIXED_BLOCKS, 3), generator=generator, device=tensor.device).tolist()
    for start, share, which in numbers[: 1 + int(numbers[0][2] * MAX_MIXED_BLOCKS)]:
        first, count = int(start * rows), max(1, round(share * block))
        part = target[first : first + count]
        sampler = TIMED_DISTRIBUTIONS[int(which * len(TIMED_DISTRIBUTIONS))].sampler
        assert sampler
        part.copy_(domain.fit(sampler(tuple(part.shape), generator), part).to(part.dtype))


def _redraw(tensor: Tensor, sampler: Sampler, seed: int, range_end: int) -> None:
    """Write new values into the tensor's own memory, in parts: the temporaries of a large one would not fit."""
    target = _non_overlapping_view(tensor)
    if target is None or target.numel() <= 1:
        return
    generator = torch.Generator(tensor.device).manual_seed(seed % (1 << 63))
    if target.is_complex() and not target.is_conj():
        target = torch.view_as_real(target)
    if target.dtype.is_floating_point:
        if is_redrawable(target):
            domain = Domain.of(target)
            factor = _range_end_factor(target, range_end)
            for part in parts_of(target):
                part.copy_(domain.fit(sampler(tuple(part.shape), generator), part).to(part.dtype) * factor)
    elif not target.is_complex() and target.dim() and not is_ascending(target):
        order = torch.randperm(target.shape[0], generator=generator, device=tensor.device)
        target.copy_(target[order])


def _range_end_factor(example: Tensor, range_end: int) -> float:
    """The power of two that scales to halfway to an end of the dtype's range, where squares leave the range; 1 for
    bounded values, which stay within bounds. At the upper end the sum of all squares is still in the range: whether
    it is accumulated in FP32 or FP64 must not matter."""
    largest = max_abs(example) if range_end else 0.0
    if largest <= 1:
        return 1.0
    half = math.frexp(torch.finfo(example.dtype).max)[1] // 2
    if range_end > 0:
        half -= 2 + math.ceil(math.log2(example.numel()) / 2)
    return 2.0 ** (range_end * half - math.frexp(largest)[1])


def _non_overlapping_view(tensor: Tensor) -> Tensor | None:
    """A view in which no element appears twice (expanded dimensions have length one); None when there is none."""
    if tensor.layout != torch.strided:
        return None
    for dim, (size, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
        if stride == 0 and size > 1:
            tensor = tensor.narrow(dim, 0, 1)
    overlaps = torch._debug_has_internal_overlap(tensor) == 1 or _overlaps_itself(tensor)
    return None if overlaps else tensor


def _overlaps_itself(tensor: Tensor) -> bool:
    span = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.numel() > max(span, 0)


def is_redrawable(example: Tensor) -> bool:
    """False for values that carry meaning: constants, masks, tensors with only two values or with infinities."""
    if example.dtype.itemsize < 2 or not all_finite(example):
        return False
    low, high = example.aminmax()
    return not bool(((example == low) | (example == high)).all())


AS_GIVEN = DISTRIBUTIONS[0]
HELD_OUT = Distribution("held out", False, None)
"""The other shapes that the problem declares."""
