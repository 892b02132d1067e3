"""Why an operation gave what it gave, in a few sentences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kernelwright.layouts.access import BankConflicts, Coalescing
from kernelwright.layouts.algebra import complement, composition, endless, filter
from kernelwright.layouts.layout import Layout, as_layout, cosize, make_layout, plain, size, unchecked
from kernelwright.layouts.swizzling import SwizzleFound
from kernelwright.layouts.tiling import logical_divide, logical_product
from kernelwright.layouts.tuples import ceil_div, leaves


def _coalesce(found: Layout, layout: Any, profile: Any = None) -> list[str]:
    if isinstance(profile, tuple):
        return ["each mode by itself, so that the rank stays"]
    (shape, stride), *modes = plain(layout).modes()
    said = []
    for more, step in modes:
        if 1 in (more, shape):
            gone = f"{more}:{step}" if more == 1 else f"{shape}:{stride}"
            shape, stride = (shape, stride) if more == 1 else (more, step)
            said.append(f"{gone} has one element: it goes")
        elif shape * stride == step:
            said.append(f"{shape}:{stride} and {more}:{step} join, since {shape} x {stride} = {step}")
            shape *= more
        else:
            said.append(f"{shape}:{stride} and {more}:{step} stay apart, since {shape} x {stride} is not {step}")
            shape, stride = more, step
    return said


def _composition(found: Any, a: Any, b: Any) -> list[str]:
    if isinstance(b, tuple):
        parts = zip(plain(a), b, strict=False)
        return [f"mode {at}: {mode} after {_or_kept(part)}" for at, (mode, part) in enumerate(parts)]
    if not isinstance(a, Layout):
        return [f"{b} gives the offsets, and the swizzle turns their bits"]
    b = as_layout(b)
    modes = endless(a)
    flat = unchecked(*(tuple(part) for part in zip(*modes, strict=True))) if len(modes) > 1 else Layout(*modes[0])
    said = [f"as a function of an index, {a} is {flat}"] if flat != a else []
    for shape, stride in b.modes():
        every = {0: f"element 0 {shape} times", 1: f"the first {shape} elements"}.get(
            stride, f"{shape} elements, every {_nth(stride)}"
        )
        said.append(f"{shape}:{stride} takes {every}: {composition(a, Layout(shape, stride))}")
    if len(list(leaves(b.shape))) > 1:
        said.append("together they never step over the end of a mode, so each can be taken by itself")
    return said


def _complement(found: Layout, layout: Any, cotarget: Any = 1) -> list[str]:
    said, covered = [], 1
    for stride, shape in sorted((stride, shape) for shape, stride in filter(as_layout(layout)).modes() if stride):
        if (gaps := stride // covered) > 1:
            said.append(f"{shape}:{stride} leaves room for {gaps} steps of {covered}: {gaps}:{covered}")
        covered = shape * stride
    reach = size(cotarget)
    if reach > covered:
        again = ceil_div(reach, covered)
        said.append(f"what covers {covered} offsets is repeated until {reach} are covered: {again}:{covered}")
    return [*said, f"together they reach {cosize(make_layout(as_layout(layout), found))} offsets, none twice"]


def _divide(found: Any, layout: Any, tiler: Any) -> list[str]:
    if isinstance(tiler, tuple):
        return _mode_by_mode(layout, tiler, "in tiles of", logical_divide)
    tiler = as_layout(tiler)
    rest = complement(tiler, size(layout))
    said = [f"the tile {tiler} repeats along its complement in {size(layout)} elements, {rest}"]
    if size(tiler) * size(rest) > size(layout):
        said.append(f"{size(tiler)} does not divide {size(layout)}: the last tile reaches beyond, and must be masked")
    return [*said, f"{layout} after ({tiler}, {rest})"]


def _product(found: Any, layout: Any, tiler: Any) -> list[str]:
    if isinstance(tiler, tuple):
        return _mode_by_mode(layout, tiler, "repeated along", logical_product)
    inner, tiler = plain(layout), as_layout(tiler)
    return [f"{inner} leaves room for copies; in the order of {tiler} they lie at {logical_product(inner, tiler)[1]}"]


def _mode_by_mode(layout: Any, tiler: tuple, verb: str, deed: Callable) -> list[str]:
    pairs = [(mode, part) for mode, part in zip(plain(layout), tiler, strict=False) if part is not None]
    return [f"{mode} {verb} {part}: {deed(mode, part)}" for mode, part in pairs]


def _zipped(deed: Callable) -> Callable[..., list[str]]:
    def said(found: Any, layout: Any, tiler: Any) -> list[str]:
        name = deed.__name__
        return [f"{name} gives {deed(layout, tiler)}", "the tiles come first, what counts them after"]

    return said


def _by_rank(order: str) -> Callable[..., list[str]]:
    def said(found: Any, block: Any, tiler: Any) -> list[str]:
        inner, tiler = plain(block), as_layout(tiler)
        return [f"mode by mode ({order}), with the places that logical_product finds", *_product(found, inner, tiler)]

    return said


def _right_inverse(found: Layout, layout: Layout) -> list[str]:
    return [f"the strides 1, and each the product of what stands before, count from 0 to {size(found) - 1}"]


def _left_inverse(found: Layout, layout: Layout) -> list[str]:
    modes = sorted((stride, shape) for shape, stride in layout.modes() if shape > 1)
    return [f"an offset divided by {stride} says which of {shape}" for stride, shape in reversed(modes)]


def _nullspace(found: Layout, layout: Layout) -> list[str]:
    return [f"{size(found)} coordinates share every offset: the modes of stride 0"]


def bank_words(found: BankConflicts) -> list[str]:
    """A finding in words."""
    if found.free:
        return [
            f"free of conflicts: {_many(found.wavefronts, 'pass', 'passes')} of {found.access_bytes} bytes a thread"
        ]
    more, threads = found.wavefronts / found.least, ", ".join(map(str, found.worst[:8]))
    dots = " ..." if len(found.worst) > 8 else ""
    return [
        f"{found.ways}-way: threads {threads}{dots} want different words of one bank; {found.wavefronts} passes "
        f"where {found.least} would do ({more:.3g}x)"
    ]


def coalescing_words(found: Coalescing) -> list[str]:
    """A finding in words."""
    return [
        f"{_many(found.sectors_per_request, 'sector', 'sectors')} a request of {found.access_bytes} bytes a thread, "
        f"{100 * found.efficiency:.0f} % of the moved bytes wanted"
    ]


def swizzle_words(found: SwizzleFound) -> list[str]:
    """A finding in words."""
    said = [f"{name}: {bank_words(one)[0]}" for name, one in found.before.items()]
    if not found.swizzle.bits:
        return [*said, "nothing to mend"]
    left = min(found.smaller.values(), default=1)
    said.append(f"under {found.swizzle} every access is free of conflicts")
    said.append(
        f"all {len(found.smaller) + found.broken} swizzles of fewer bits were tried: {found.broken} tear an access "
        f"apart, and {len(found.smaller)} leave {left} ways or more"
    )
    return said


def _many(number: float, one: str, more: str) -> str:
    return f"{number:.3g} {one if number == 1 else more}" if number < 1000 else f"{number:,.0f} {more}"


def _or_kept(part: Any) -> str:
    return "itself" if part is None else str(part)


def _nth(number: int) -> str:
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


EXPLAINED: dict[str, Callable[..., list[str]]] = {
    "coalesce": _coalesce,
    "composition": _composition,
    "complement": _complement,
    "logical_divide": _divide,
    "logical_product": _product,
    "zipped_divide": _zipped(logical_divide),
    "tiled_divide": _zipped(logical_divide),
    "flat_divide": _zipped(logical_divide),
    "zipped_product": _zipped(logical_product),
    "tiled_product": _zipped(logical_product),
    "flat_product": _zipped(logical_product),
    "blocked_product": _by_rank("block, tiler"),
    "raked_product": _by_rank("tiler, block"),
    "right_inverse": _right_inverse,
    "left_inverse": _left_inverse,
    "nullspace": _nullspace,
    "bank_conflicts": lambda found, *_: bank_words(found),
    "coalescing": lambda found, *_: coalescing_words(found),
    "find_swizzle": lambda found, *_: swizzle_words(found),
}
