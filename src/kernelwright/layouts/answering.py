"""An expression worked out as one record: the result, every step in words, the three questions, and a drawing."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from kernelwright.core.layout import LayoutAnswer, LayoutDrawing, LayoutQuestion, LayoutStep
from kernelwright.layouts.access import BankConflicts, Coalescing, bank_conflicts, coalescing
from kernelwright.layouts.drawing import grid, holders
from kernelwright.layouts.errors import LayoutError
from kernelwright.layouts.explaining import bank_words, coalescing_words, swizzle_words
from kernelwright.layouts.expressions import Evaluation, ThreadValues, evaluate, shown
from kernelwright.layouts.layout import Layout, cosize, plain, size
from kernelwright.layouts.swizzle import ComposedLayout, Swizzle
from kernelwright.layouts.swizzling import SwizzleFound, find_swizzle
from kernelwright.layouts.tuples import depth, rank, text

MOST_DRAWN, MOST_ASKED, MOST_SEARCHED = 2**20, 2**16, 2**13
"""Elements up to which a layout is drawn, asked about unasked, and a swizzle looked for."""


def explain(
    expression: str,
    *,
    element_bytes: int = 4,
    threads: int | None = None,
    tile: tuple[int, int] | None = None,
    colour: str = "offset",
) -> LayoutAnswer:
    """What an expression of layouts comes to, why, what it would cost on a GPU, and how it looks.

    Args:
        expression: such as "composition((6,2):(8,2), (4,3):(3,1))"; `layouts.parsing` has the grammar.
        element_bytes: for the questions and for banks in the drawing.
        threads: how many of the first mode take part in the questions; all of them when left out.
        tile: (rows, columns): the result is (thread, value) -> row + rows * column, and is drawn as who holds what.
        colour: offset, bank, line or thread.
    Raises:
        LayoutError: it cannot be read or has no answer; `where` marks the part.
    """
    found = evaluate(expression, element_bytes)
    value, layout = found.value, _layout_of(found.value)
    figures: dict[str, Any] = {}
    if layout is not None:
        inner = plain(layout)
        figures = {
            "shape": text(inner.shape),
            "stride": text(inner.stride),
            "size": size(inner),
            "cosize": cosize(inner),
            "rank": rank(inner),
            "depth": depth(inner),
        }
    return LayoutAnswer(
        expression=expression,
        kind=_kind(value),
        result=shown(value),
        steps=tuple(LayoutStep(step.call, step.result, step.words) for step in found.steps),
        questions=tuple(_questions(found, layout, element_bytes, threads)),
        drawing=_drawing(value, layout, tile, colour, element_bytes),
        **figures,
    )


def _kind(value: Any) -> str:
    kinds = {Layout: "layout", ComposedLayout: "composed", ThreadValues: "thread-values", Swizzle: "swizzle"}
    findings = (BankConflicts, Coalescing, SwizzleFound)
    if type(value) in kinds:
        return kinds[type(value)]
    return "finding" if isinstance(value, findings) else "tuple" if isinstance(value, tuple) else "number"


def _layout_of(value: Any) -> Any:
    """What can be drawn and asked: a layout, or the layout inside."""
    if isinstance(value, ThreadValues | SwizzleFound):
        return value.layout
    return value if isinstance(value, Layout | ComposedLayout) else None


def _drawing(
    value: Any, layout: Any, tile: tuple[int, int] | None, colour: str, element_bytes: int
) -> LayoutDrawing | None:
    if isinstance(value, ThreadValues):
        return holders(value.name, value.layout, tile or value.shape)
    if layout is None or size(layout) > MOST_DRAWN:
        return None
    return holders("", layout, tile) if tile else grid(layout, colour=colour, element_bytes=element_bytes)


def _questions(found: Evaluation, layout: Any, element_bytes: int, threads: int | None) -> list[LayoutQuestion]:
    """Are there bank conflicts, is it coalesced, which swizzle helps: of a layout that is (thread, value) -> offset."""
    value = found.value
    if isinstance(value, BankConflicts | Coalescing | SwizzleFound):
        return [_question(value)]
    if not isinstance(value, Layout | ComposedLayout):
        return []
    if size(layout) > MOST_ASKED:
        return [LayoutQuestion("all three", f"not answered unasked beyond {MOST_ASKED:,} elements: ask of a tile")]
    asked = [_question(bank_conflicts(layout, element_bytes, threads))]
    if isinstance(value, ComposedLayout):  # a swizzle stands over shared memory: the other two do not arise
        return asked
    asked.append(_question(coalescing(layout, element_bytes, threads)))
    if rank(value) == 2 and size(value) <= MOST_SEARCHED:
        try:
            asked.append(_question(find_swizzle(value, element_bytes)))
        except LayoutError as fault:
            asked.append(LayoutQuestion("swizzle", fault.message))
    return asked


def _question(value: BankConflicts | Coalescing | SwizzleFound) -> LayoutQuestion:
    if isinstance(value, BankConflicts):
        return LayoutQuestion("bank conflicts", bank_words(value)[0], _scalars(value))
    if isinstance(value, Coalescing):
        figures = _scalars(value) | {"sectors_per_request": value.sectors_per_request, "efficiency": value.efficiency}
        return LayoutQuestion("coalescing", coalescing_words(value)[0], figures)
    tried = {"smaller": len(value.smaller), "torn": value.broken, "swizzle": str(value.swizzle)}
    return LayoutQuestion("swizzle", "; ".join(swizzle_words(value)), {**tried, "layout": str(value.layout)})


def _scalars(value: Any) -> dict[str, Any]:
    return {name: part for name, part in asdict(value).items() if not isinstance(part, tuple)}
