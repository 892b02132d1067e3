"""Explanations of the results of layout operations, as a few lines of text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kernelwright.layouts.access import BankConflicts, Coalescing
from kernelwright.layouts.algebra import complement, composition, filter, unbounded_modes
from kernelwright.layouts.layout import Layout, as_layout, cosize, make_layout, make_unchecked, size, without_swizzle
from kernelwright.layouts.swizzling import SwizzleSearchResult
from kernelwright.layouts.tiling import logical_divide, logical_product
from kernelwright.layouts.tuples import ceil_div, leaves


def _explain_coalesce(result: Layout, layout: Any, profile: Any = None) -> list[str]:
    if isinstance(profile, tuple):
        return ["each mode on its own, so the rank is kept"]
    (shape, stride), *modes = without_swizzle(layout).modes()
    lines = []
    for more, step in modes:
        if 1 in (more, shape):
            removed = f"{more}:{step}" if more == 1 else f"{shape}:{stride}"
            shape, stride = (shape, stride) if more == 1 else (more, step)
            lines.append(f"{removed} has one element and is removed")
        elif shape * stride == step:
            lines.append(f"{shape}:{stride} and {more}:{step} are merged, since {shape} x {stride} = {step}")
            shape *= more
        else:
            lines.append(f"{shape}:{stride} and {more}:{step} are not merged, since {shape} x {stride} is not {step}")
            shape, stride = more, step
    return lines


def _explain_composition(result: Any, a: Any, b: Any) -> list[str]:
    if isinstance(b, tuple):
        parts = zip(without_swizzle(a), b, strict=False)
        return [
            f"mode {i}: {mode} is unchanged" if part is None else f"mode {i}: {mode} o {part}"
            for i, (mode, part) in enumerate(parts)
        ]
    if not isinstance(a, Layout):
        return [f"{b} maps to offsets, the swizzle XORs their bits"]
    b = as_layout(b)
    modes = unbounded_modes(a)
    flat = make_unchecked(*(tuple(part) for part in zip(*modes, strict=True))) if len(modes) > 1 else Layout(*modes[0])
    lines = [f"as a function of an index, {a} is {flat}"] if flat != a else []
    for shape, stride in b.modes():
        lines.append(
            f"{shape}:{stride} selects {_describe_elements(shape, stride)}: {composition(a, Layout(shape, stride))}"
        )
    if len(list(leaves(b.shape))) > 1:
        lines.append("together they stay within each mode, so each can be composed on its own")
    return lines


def _describe_elements(shape: int, stride: int) -> str:
    if shape == 1:
        return "the first element"
    if stride == 0:
        return f"the first element {shape} times"
    return f"the first {shape} elements" if stride == 1 else f"{shape} elements, every {_ordinal(stride)}"


def _explain_complement(result: Layout, layout: Any, cotarget: Any = 1) -> list[str]:
    lines, covered = [], 1
    for stride, shape in sorted((stride, shape) for shape, stride in filter(as_layout(layout)).modes() if stride):
        if (gaps := stride // covered) > 1:
            lines.append(
                f"{_pluralize(gaps, 'step', 'steps')} of {covered} fit below {shape}:{stride}: {gaps}:{covered}"
            )
        covered = shape * stride
    reach = size(as_layout(cotarget))
    if reach > covered:
        repeats = ceil_div(reach, covered)
        lines.append(
            f"these {_pluralize(covered, 'offset', 'offsets')} are repeated up to {reach}: {repeats}:{covered}"
        )
    distinct = size(filter(as_layout(layout))) * size(result)
    end = cosize(make_layout(as_layout(layout), result))
    return [
        *lines,
        f"together they cover {'all' if distinct == end else distinct} of {_pluralize(end, 'offset', 'offsets')}",
    ]


def _explain_divide(result: Any, layout: Any, tiler: Any) -> list[str]:
    if isinstance(tiler, tuple):
        return _explain_by_mode(layout, tiler, "in tiles of", logical_divide)
    tiler = as_layout(tiler)
    rest = complement(tiler, size(layout))
    lines = [f"the tile {tiler} is repeated along its complement in {size(layout)} elements, {rest}"]
    if size(tiler) * size(rest) > size(layout):
        lines.append(
            f"{size(tiler)} does not divide {size(layout)}: the last tile exceeds the layout and must be masked"
        )
    return [*lines, f"{layout} o ({tiler}, {rest})"]


def _explain_product(result: Any, layout: Any, tiler: Any) -> list[str]:
    if isinstance(tiler, tuple):
        return _explain_by_mode(layout, tiler, "repeated along", logical_product)
    inner, tiler = without_swizzle(layout), as_layout(tiler)
    return [f"the copies of {inner}, in the order of {tiler}, are at {logical_product(inner, tiler)[1]}"]


def _explain_by_mode(layout: Any, tiler: tuple, verb: str, operation: Callable) -> list[str]:
    pairs = [(mode, part) for mode, part in zip(without_swizzle(layout), tiler, strict=False) if part is not None]
    return [f"{mode} {verb} {part}: {operation(mode, part)}" for mode, part in pairs]


def _explain_zipped(operation: Callable) -> Callable[..., list[str]]:
    def explain(result: Any, layout: Any, tiler: Any) -> list[str]:
        name = operation.__name__
        return [f"{name} returns {operation(layout, tiler)}", "the tile modes come first, then the rest modes"]

    return explain


def _explain_by_rank(order: str) -> Callable[..., list[str]]:
    def explain(result: Any, block: Any, tiler: Any) -> list[str]:
        inner, tiler = without_swizzle(block), as_layout(tiler)
        return [
            f"mode by mode ({order}), at the offsets of logical_product",
            *_explain_product(result, inner, tiler),
        ]

    return explain


def _explain_right_inverse(result: Layout, layout: Layout) -> list[str]:
    if size(result) == 1:
        return ["no stride is 1, so only offset 0 is covered"]
    return [f"the modes with contiguous strides, starting at 1, cover the offsets 0 to {size(result) - 1}"]


def _explain_left_inverse(result: Layout, layout: Layout) -> list[str]:
    modes = sorted(((stride, shape) for shape, stride in layout.modes() if shape > 1), reverse=True)
    lines = [f"the quotient by {stride} is the coordinate of {shape}:{stride}" for stride, shape in modes]
    return ["the offset, then each remainder, is divided by the strides:", *lines] if lines else []


def _explain_nullspace(result: Layout, layout: Layout) -> list[str]:
    return [f"{_pluralize(size(result), 'coordinate maps', 'coordinates map')} to each offset: the modes of stride 0"]


def _explain_cast(result: Any, layout: Any, *_: Any) -> list[str]:
    if not isinstance(layout, Layout):
        return ["the swizzle applies to the same bits of the byte address"]
    return [
        f"{shape}:{stride} becomes {after}:{step}"
        for (shape, stride), (after, step) in zip(layout.modes(), result.modes(), strict=True)
    ]


def _explain_filter(result: Layout, layout: Any, *_: Any) -> list[str]:
    removed = [f"{shape}:{stride}" for shape, stride in without_swizzle(layout).modes() if stride == 0 or shape == 1]
    verb = "is" if len(removed) == 1 else "are"
    return [f"{', '.join(removed)} {verb} removed: no new offsets"] if removed else []


def _explain_common(result: Any, a: Layout, b: Layout) -> list[str]:
    count = result if isinstance(result, int) else size(result)
    return [f"{_pluralize(count, 'element is', 'elements are')} contiguous in both"]


def describe_bank_conflicts(result: BankConflicts) -> list[str]:
    """Bank conflicts as text."""
    if result.is_conflict_free:
        return [
            f"conflict-free: {_pluralize(result.wavefronts, 'wavefront', 'wavefronts')} of "
            f"{result.access_bytes} bytes per thread"
        ]
    threads = ", ".join(map(str, result.conflicting_threads[:8]))
    dots = " ..." if len(result.conflicting_threads) > 8 else ""
    return [
        f"{result.ways}-way: threads {threads}{dots} access different words of one bank; "
        f"{_pluralize(result.wavefronts, 'wavefront', 'wavefronts')}, at best {result.ideal_wavefronts}"
    ]


def describe_coalescing(result: Coalescing) -> list[str]:
    """Coalescing as text."""
    return [
        f"{_pluralize(result.sectors_per_request, 'sector', 'sectors')} per request of "
        f"{result.access_bytes} bytes per thread, "
        f"{100 * result.efficiency:.0f} % of the bytes moved are requested"
    ]


def describe_swizzle(result: SwizzleSearchResult) -> list[str]:
    """The result of a swizzle search as text."""
    lines = [f"{name}: {describe_bank_conflicts(one)[0]}" for name, one in result.conflicts_before.items()]
    if not result.swizzle.bits:
        return [*lines, "no swizzle is needed"]
    lines.append(f"with {result.swizzle} every access is conflict-free")
    inapplicable = f"{result.num_inapplicable} split an access or leave the tile, " if result.num_inapplicable else ""
    fewer = len(result.smaller_swizzles) + result.num_inapplicable
    lines.append(
        f"of the {_pluralize(fewer, 'swizzle', 'swizzles')} with fewer bits, "
        f"{inapplicable}{len(result.smaller_swizzles)} leave conflicts"
    )
    return lines


def _pluralize(number: float, one: str, more: str) -> str:
    return f"{number:.3g} {one if number == 1 else more}" if number < 1000 else f"{number:,.0f} {more}"


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
    "bank_conflicts": lambda result, *_: describe_bank_conflicts(result),
    "coalescing": lambda result, *_: describe_coalescing(result),
    "find_swizzle": lambda result, *_: describe_swizzle(result),
}
