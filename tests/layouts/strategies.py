"""Random layouts, and the model that they are held against: every coordinate with its offset, from scratch."""

from __future__ import annotations

from itertools import pairwise, product
from math import inf, prod

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernelwright.layouts import Layout, Swizzle


def coordinates(shape):
    """Every natural coordinate in colexicographic order: the first mode turns fastest."""
    if isinstance(shape, int):
        return list(range(shape))
    return [crd[::-1] for crd in product(*map(coordinates, reversed(shape)))]


def dot(crd, stride):
    return sum(map(dot, crd, stride)) if isinstance(crd, tuple) else crd * stride


def table(layout):
    return {crd: dot(crd, layout.stride) for crd in coordinates(layout.shape)}


def offsets(layout):
    return list(table(layout).values())


def flat(value):
    return [leaf for part in value for leaf in flat(part)] if isinstance(value, tuple) else [value]


def modes(layout):
    return list(zip(flat(layout.shape), flat(layout.stride), strict=True))


def beyond(layout, index):
    """The offset of an index, however large: the last mode goes on without end."""
    *before, (_, last) = modes(layout)
    offset = 0
    for shape, stride in before:
        offset += index % shape * stride
        index //= shape
    return offset + index * last


def fewest(values):
    """The modes that a layout of these offsets needs, over all ordered factorizations; inf where there is none."""
    size = len(values)
    if size == 1:
        return 0 if values[0] == 0 else inf
    lengths = [
        length
        for length in range(2, size + 1)
        if size % length == 0
        and all(values[at] == values[at - at % length] + at % length * values[1] for at in range(size))
    ]
    return min((1 + fewest(values[::length]) for length in lengths), default=inf)


def could_be_composed(a, b):
    """Whether any layout with the modes of b gives a(b(c)): each mode alone must, and together they must add up."""
    parts = [[beyond(a, at * stride) for at in range(shape)] for shape, stride in modes(b)]
    wanted = [beyond(a, offset) for offset in offsets(b)]
    return all(fewest(part) < inf for part in parts) and [sum(c) for c in product(*reversed(parts))] == wanted


def sorted_modes(layout):
    return sorted((stride, shape) for shape, stride in modes(layout) if stride and shape > 1)


def interleaved(layout):
    """Whether a mode begins before the one of the next smaller stride has taken all its steps."""
    ordered = sorted_modes(layout)
    return any(after < stride * shape for (stride, shape), (after, _) in pairwise(ordered))


def injective(layout):
    return len(set(offsets(layout))) == len(offsets(layout))


class Choices:
    """Decisions, a byte for each: 0 is the simplest one, to which hypothesis shrinks."""

    def __init__(self, source):
        self.left = iter(source)

    def upto(self, count):
        return next(self.left, 0) % count

    def of(self, options):
        return options[self.upto(len(options))]

    def shuffled(self, items):
        left = list(items)
        return [left.pop(self.upto(len(left))) for _ in items]


EXTENTS = (2, 3, 4, 1, 6, 5, 8, 7, 9, 12, 16, 30)


def nested(leaves, choices, inner=2):
    """The leaves in brackets: up to 4 modes of up to 3 levels."""
    if len(leaves) == 1 and choices.upto(6) < 5:
        return leaves[0]
    if inner == 0:
        return tuple(leaves)
    parts = [[leaves[0]]]
    for leaf in leaves[1:]:
        if len(parts) == 4 or choices.upto(3) == 2:
            parts[-1].append(leaf)
        else:
            parts.append([leaf])
    return tuple(nested(part, choices, inner - 1) for part in parts)


def shape_of(choices, most):
    count, extents = 1 + choices.upto(6), []
    usual = [extent for extent in EXTENTS if extent**count <= 4 * most]
    for _ in range(count):
        extents.append(min(choices.of(usual), most // prod(extents)))
    return nested(choices.shuffled(extents), choices)


def filled(profile, values):
    """The values, in the form of the profile."""
    values = iter(values)

    def of(part):
        return tuple(map(of, part)) if isinstance(part, tuple) else next(values)

    return of(profile)


def stride_of(shape, choices):
    """Compact in any order; or with gaps; or with zeros; or any small numbers."""
    extents = flat(shape)
    kind = choices.of(("compact", "gaps", "any", "zeros", "gaps and zeros"))
    if kind == "any":
        return filled(shape, [choices.upto(25) for _ in extents])
    found, running = [0] * len(extents), 1
    for at in choices.shuffled(range(len(extents))):
        if "zeros" in kind and choices.upto(3) == 2:
            continue
        running *= choices.of((1, 1, 2, 3)) if "gaps" in kind else 1
        found[at] = running
        running *= extents[at]
    return filled(shape, found)


def layout_of(choices, most=600):
    shape = shape_of(choices, most)
    return Layout(shape, stride_of(shape, choices))


def selection_of(layout, choices, most=200):
    """A layout that picks whole digits of another one's index, so that it can stand on its right."""
    steps, running = [], 1
    for extent in flat(layout.shape):
        cut = choices.of([part for part in range(1, extent + 1) if extent % part == 0])
        steps += [(cut, running), (extent // cut, running * cut)]
        running *= extent
    steps = [step for step in steps if 1 < step[0] <= most] or [(1, 0)]
    kept = choices.shuffled(steps)[: 1 + choices.upto(5)]
    while prod(shape for shape, _ in kept) > most:
        kept.pop()
    form = nested(range(len(kept)), choices)
    return Layout(*(filled(form, column) for column in zip(*kept, strict=True)))


def pair_of(choices, most, left_most):
    """A layout, and one for its right: a selection of it, even steps through it, or any."""
    left = layout_of(choices, left_most)
    kind = choices.of(("selection", "steps", "any"))
    if kind == "selection":
        return left, selection_of(left, choices, most)
    if kind == "any":
        return left, layout_of(choices, most // 2)
    size = prod(flat(left.shape))
    divisors = [part for part in range(1, size + 1) if size % part == 0]
    return left, Layout(min(choices.of(divisors), most), choices.of(divisors))


def tiler_of(layout, choices):
    """By mode: an integer, a layout, None, or a tuple of them for the modes within."""
    parts = []
    for mode in list(layout)[: 1 + choices.upto(len(layout))]:
        kind = choices.of(("integer", "selection", "none", "any", "modes"))
        if kind == "integer":
            parts.append(choices.of((2, 3, 4, 1, 6, 8)))
        elif kind == "modes" and isinstance(mode.shape, tuple):
            parts.append(tiler_of(mode, choices))
        elif kind == "any":
            parts.append(layout_of(choices, 12))
        else:
            parts.append(None if kind == "none" else selection_of(mode, choices, 24))
    return tuple(parts)


def drawn(made, *args):
    return st.binary(min_size=48, max_size=48).map(lambda source: made(Choices(source), *args))


def shapes(most=600):
    return drawn(shape_of, most)


def layouts(most=600):
    return drawn(layout_of, most)


def pairs(most=200, left_most=600):
    return drawn(pair_of, most, left_most)


def tiled(most=300):
    """A layout with a tiler for its modes."""

    def made(choices):
        layout = layout_of(choices, most)
        return layout, tiler_of(layout, choices)

    return drawn(made)


SWIZZLES = st.builds(
    lambda bits, base, more, sign: Swizzle(bits, base, sign * (bits + more)),
    st.integers(0, 3),
    st.integers(0, 4),
    st.integers(0, 2),
    st.sampled_from((1, -1)),
)


FULL = 20_000


def examples(count):
    """The same ones every day, so that a failure is a change; the full length draws anew."""
    daily = count < FULL
    return settings(max_examples=count, deadline=None, derandomize=daily, suppress_health_check=[HealthCheck.too_slow])


def lengths(count):
    """A property as it runs every day, and its full length."""
    full = pytest.param(FULL, marks=[pytest.mark.exhaustive, pytest.mark.timeout(1800)])
    return pytest.mark.parametrize("count", [count, full])


def every(count, strategy):
    """The property over so many examples."""
    return lambda holds: examples(count)(given(strategy)(holds))()


def leaves_gaps(layout):
    """Whether some stride is no multiple of what the strides below it cover."""
    covered = [1, *(stride * shape for stride, shape in sorted_modes(layout))]
    return any(stride % before for (stride, _), before in zip(sorted_modes(layout), covered, strict=False))
