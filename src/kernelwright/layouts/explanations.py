"""Why an operation gave what it gave, in a few sentences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kernelwright.layouts.access import BankConflicts, Coalescing
from kernelwright.layouts.algebra import complement, composition, filter, unbounded_modes
from kernelwright.layouts.layout import Layout, as_layout, cosize, make_layout, make_unchecked, size, without_swizzle
from kernelwright.layouts.swizzling import SwizzleSearchResult
from kernelwright.layouts.tiling import logical_divide, logical_product
from kernelwright.layouts.tuples import ceil_div, leaves


def _explain_coalesce(found: Layout, layout: Any, profile: Any = None) -> list[str]:
    if isinstance(profile, tuple):
        return ["each mode by itself, so that the rank stays"]
    (shape, stride), *modes = without_swizzle(layout).modes()
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


def _explain_composition(found: Any, a: Any, b: Any) -> list[str]:
    if isinstance(b, tuple):
        parts = zip(without_swizzle(a), b, strict=False)
        return [f"mode {at}: {mode} after {_describe_part(part)}" for at, (mode, part) in enumerate(parts)]
    if not isinstance(a, Layout):
        return [f"{b} gives the offsets, and the swizzle turns their bits"]
    b = as_layout(b)
    modes = unbounded_modes(a)
    flat = make_unchecked(*(tuple(part) for part in zip(*modes, strict=True))) if len(modes) > 1 else Layout(*modes[0])
    said = [f"as a function of an index, {a} is {flat}"] if flat != a else []
    for shape, stride in b.modes():
        said.append(
            f"{shape}:{stride} takes {_describe_elements(shape, stride)}: {composition(a, Layout(shape, stride))}"
        )
    if len(list(leaves(b.shape))) > 1:
        said.append("together they never step over the end of a mode, so each can be taken by itself")
    return said


def _describe_elements(shape: int, stride: int) -> str:
    if shape == 1:
        return "the first element"
    if stride == 0:
        return f"the first element {shape} times"
    return f"the first {shape} elements" if stride == 1 else f"{shape} elements, every {_ordinal(stride)}"


def _explain_complement(found: Layout, layout: Any, cotarget: Any = 1) -> list[str]:
    said, covered = [], 1
    for stride, shape in sorted((stride, shape) for shape, stride in filter(as_layout(layout)).modes() if stride):
        if (gaps := stride // covered) > 1:
            said.append(
                f"{shape}:{stride} leaves room for {_pluralize(gaps, 'step', 'steps')} of {covered}: {gaps}:{covered}"
            )
        covered = shape * stride
    reach = size(as_layout(cotarget))
    if reach > covered:
        again = ceil_div(reach, covered)
        said.append(
            f"what spans {_pluralize(covered, 'offset', 'offsets')} is repeated until {reach}: {again}:{covered}"
        )
    distinct = size(filter(as_layout(layout))) * size(found)
    end = cosize(make_layout(as_layout(layout), found))
    return [
        *said,
        f"together they take {'all' if distinct == end else distinct} of {_pluralize(end, 'offset', 'offsets')}",
    ]


def _explain_divide(found: Any, layout: Any, tiler: Any) -> list[str]:
    if isinstance(tiler, tuple):
        return _explain_by_mode(layout, tiler, "in tiles of", logical_divide)
    tiler = as_layout(tiler)
    rest = complement(tiler, size(layout))
    said = [f"the tile {tiler} repeats along its complement in {size(layout)} elements, {rest}"]
    if size(tiler) * size(rest) > size(layout):
        said.append(f"{size(tiler)} does not divide {size(layout)}: the last tile reaches beyond, and must be masked")
    return [*said, f"{layout} after ({tiler}, {rest})"]


def _explain_product(found: Any, layout: Any, tiler: Any) -> list[str]:
    if isinstance(tiler, tuple):
        return _explain_by_mode(layout, tiler, "repeated along", logical_product)
    inner, tiler = without_swizzle(layout), as_layout(tiler)
    return [f"{inner} leaves room for copies; in the order of {tiler} they lie at {logical_product(inner, tiler)[1]}"]


def _explain_by_mode(layout: Any, tiler: tuple, verb: str, operation: Callable) -> list[str]:
    pairs = [(mode, part) for mode, part in zip(without_swizzle(layout), tiler, strict=False) if part is not None]
    return [f"{mode} {verb} {part}: {operation(mode, part)}" for mode, part in pairs]


def _explain_zipped(operation: Callable) -> Callable[..., list[str]]:
    def said(found: Any, layout: Any, tiler: Any) -> list[str]:
        name = operation.__name__
        return [f"{name} gives {operation(layout, tiler)}", "the tiles come first, what counts them after"]

    return said


def _explain_by_rank(order: str) -> Callable[..., list[str]]:
    def said(found: Any, block: Any, tiler: Any) -> list[str]:
        inner, tiler = without_swizzle(block), as_layout(tiler)
        return [
            f"mode by mode ({order}), with the places that logical_product finds",
            *_explain_product(found, inner, tiler),
        ]

    return said


def _explain_right_inverse(found: Layout, layout: Layout) -> list[str]:
    if size(found) == 1:
        return ["no stride is 1: only offset 0 is reached by counting"]
    return [f"the modes whose strides follow on each other, from 1, reach the offsets 0 to {size(found) - 1}"]


def _explain_left_inverse(found: Layout, layout: Layout) -> list[str]:
    modes = sorted(((stride, shape) for shape, stride in layout.modes() if shape > 1), reverse=True)
    said = [f"how often {stride} goes into it is the coordinate of {shape}:{stride}" for stride, shape in modes]
    return ["of an offset, and then of what is left of it:", *said] if said else []


def _explain_nullspace(found: Layout, layout: Layout) -> list[str]:
    return [f"{_pluralize(size(found), 'coordinate has', 'coordinates have')} each offset: the modes of stride 0"]


def _explain_cast(found: Any, layout: Any, *_: Any) -> list[str]:
    if not isinstance(layout, Layout):
        return ["a swizzle turns the same bits of memory"]
    return [
        f"{shape}:{stride} becomes {after}:{step}"
        for (shape, stride), (after, step) in zip(layout.modes(), found.modes(), strict=True)
    ]


def _explain_filter(found: Layout, layout: Any, *_: Any) -> list[str]:
    gone = [f"{shape}:{stride}" for shape, stride in without_swizzle(layout).modes() if stride == 0 or shape == 1]
    return [f"{', '.join(gone)} {'goes' if len(gone) == 1 else 'go'}: no new offset"] if gone else []


def _explain_common(found: Any, a: Layout, b: Layout) -> list[str]:
    most = found if isinstance(found, int) else size(found)
    return [f"{_pluralize(most, 'element lies', 'elements lie')} one after the other in both"]


def describe_bank_conflicts(found: BankConflicts) -> list[str]:
    """A finding in words."""
    if found.is_conflict_free:
        return [
            f"free of conflicts: {_pluralize(found.wavefronts, 'pass', 'passes')} of "
            f"{found.access_bytes} bytes a thread"
        ]
    threads = ", ".join(map(str, found.conflicting_threads[:8]))
    dots = " ..." if len(found.conflicting_threads) > 8 else ""
    return [
        f"{found.ways}-way: threads {threads}{dots} want different words of one bank; "
        f"{_pluralize(found.wavefronts, 'pass', 'passes')} where {found.ideal_wavefronts} would do"
    ]


def describe_coalescing(found: Coalescing) -> list[str]:
    """A finding in words."""
    return [
        f"{_pluralize(found.sectors_per_request, 'sector', 'sectors')} a request of "
        f"{found.access_bytes} bytes a thread, "
        f"{100 * found.efficiency:.0f} % of the moved bytes wanted"
    ]


def describe_swizzle(found: SwizzleSearchResult) -> list[str]:
    """A finding in words."""
    said = [f"{name}: {describe_bank_conflicts(one)[0]}" for name, one in found.conflicts_before.items()]
    if not found.swizzle.bits:
        return [*said, "nothing to mend"]
    said.append(f"under {found.swizzle} every access is free of conflicts")
    torn = f"{found.num_inapplicable} tear an access apart or leave the tile, " if found.num_inapplicable else ""
    fewer = len(found.smaller_swizzles) + found.num_inapplicable
    said.append(
        f"of the {_pluralize(fewer, 'swizzle', 'swizzles')} of fewer bits, "
        f"{torn}{len(found.smaller_swizzles)} leave conflicts"
    )
    return said


def _pluralize(number: float, one: str, more: str) -> str:
    return f"{number:.3g} {one if number == 1 else more}" if number < 1000 else f"{number:,.0f} {more}"


def _describe_part(part: Any) -> str:
    return "itself" if part is None else str(part)


def _ordinal(number: int) -> str:
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


EXPLANATIONS: dict[str, Callable[..., list[str]]] = {
    "coalesce": _explain_coalesce,
    "composition": _explain_composition,
    "complement": _explain_complement,
    "logical_divide": _explain_divide,
    "logical_product": _explain_product,
    "zipped_divide": _explain_zipped(logical_divide),
    "tiled_divide": _explain_zipped(logical_divide),
    "flat_divide": _explain_zipped(logical_divide),
    "zipped_product": _explain_zipped(logical_product),
    "tiled_product": _explain_zipped(logical_product),
    "flat_product": _explain_zipped(logical_product),
    "blocked_product": _explain_by_rank("block, tiler"),
    "raked_product": _explain_by_rank("tiler, block"),
    "filter": _explain_filter,
    "max_common_layout": _explain_common,
    "max_common_vector": _explain_common,
    "upcast": _explain_cast,
    "right_inverse": _explain_right_inverse,
    "left_inverse": _explain_left_inverse,
    "nullspace": _explain_nullspace,
    "bank_conflicts": lambda found, *_: describe_bank_conflicts(found),
    "coalescing": lambda found, *_: describe_coalescing(found),
    "find_swizzle": lambda found, *_: describe_swizzle(found),
}
