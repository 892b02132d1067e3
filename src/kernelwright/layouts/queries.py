"""Evaluates an expression into one record: the result, explained steps, three analyses of its access, and a drawing."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from kernelwright.core.layout import LayoutDrawing, LayoutEvaluation, LayoutQuestion, LayoutStep
from kernelwright.layouts.access import BankConflicts, Coalescing, bank_conflicts, coalescing
from kernelwright.layouts.drawing import draw_grid, draw_owners
from kernelwright.layouts.errors import LayoutError
from kernelwright.layouts.explanations import describe_bank_conflicts, describe_coalescing, describe_swizzle
from kernelwright.layouts.expressions import Evaluation, ThreadValues, evaluate, format_value
from kernelwright.layouts.layout import Layout, cosize, size, without_swizzle
from kernelwright.layouts.swizzle import ComposedLayout, Swizzle
from kernelwright.layouts.swizzling import SwizzleSearchResult, find_swizzle
from kernelwright.layouts.tuples import depth, format_tuple, rank

MAX_DRAWN_ELEMENTS, MAX_QUERIED_ELEMENTS, MAX_SWIZZLE_SEARCH_ELEMENTS = 2**20, 2**16, 2**13
"""Largest layout that is drawn, analysed by default, and searched for a swizzle."""


def explain(
    expression: str,
    *,
    element_bytes: int = 4,
    threads: int | None = None,
    tile: tuple[int, int] | None = None,
    colour: str = "offset",
) -> LayoutEvaluation:
    """Evaluate a layout expression, with explanations, its access cost on a GPU, and a drawing.

    Args:
        expression: such as "composition((6,2):(8,2), (4,3):(3,1))"; `layouts.parsing` has the grammar.
        element_bytes: for the access analyses and for banks in the drawing.
        threads: number of threads of the first mode in the access analyses; all by default.
        tile: (rows, columns): treat the result as (thread, value) -> row + rows * column and draw the owning threads.
        colour: offset, bank, line or thread.
    Raises:
        LayoutError: it cannot be parsed or has no result; `where` marks the part.
    """
    evaluation = evaluate(expression, element_bytes)
    value, layout = evaluation.value, _layout_of(evaluation.value)
    metrics: dict[str, Any] = {}
    if layout is not None:
        inner = without_swizzle(layout)
        metrics = {
            "shape": format_tuple(inner.shape),
            "stride": format_tuple(inner.stride),
            "size": size(inner),
            "cosize": cosize(inner),
            "rank": rank(inner),
            "depth": depth(inner),
        }
    return LayoutEvaluation(
        expression=expression,
        kind=_result_kind(value),
        result=format_value(value),
        steps=tuple(LayoutStep(step.call, step.result, step.explanation) for step in evaluation.steps),
        questions=tuple(_answer_questions(evaluation, layout, element_bytes, threads)),
        drawing=_draw_result(value, layout, tile, colour, element_bytes),
        **metrics,
    )


def _result_kind(value: Any) -> str:
    kinds = {Layout: "layout", ComposedLayout: "composed", ThreadValues: "thread-values", Swizzle: "swizzle"}
    findings = (BankConflicts, Coalescing, SwizzleSearchResult)
    if type(value) in kinds:
        return kinds[type(value)]
    return "finding" if isinstance(value, findings) else "tuple" if isinstance(value, tuple) else "number"


def _layout_of(value: Any) -> Any:
    """The layout of a value that can be drawn and analysed, or None."""
    if isinstance(value, ThreadValues | SwizzleSearchResult):
        return value.layout
    return value if isinstance(value, Layout | ComposedLayout) else None


def _draw_result(
    value: Any, layout: Any, tile: tuple[int, int] | None, colour: str, element_bytes: int
) -> LayoutDrawing | None:
    if isinstance(value, ThreadValues):
        return draw_owners(value.name, value.layout, tile or value.shape)
    if layout is None or size(layout) > MAX_DRAWN_ELEMENTS:
        return None
    return draw_owners("", layout, tile) if tile else draw_grid(layout, colour=colour, element_bytes=element_bytes)


def _answer_questions(
    evaluation: Evaluation, layout: Any, element_bytes: int, threads: int | None
) -> list[LayoutQuestion]:
    """Analyse a (thread, value) -> offset layout: bank conflicts, coalescing, and the swizzle to use."""
    value = evaluation.value
    if isinstance(value, BankConflicts | Coalescing | SwizzleSearchResult):
        return [_answer_question(value)]
    if not isinstance(value, Layout | ComposedLayout):
        return []
    if size(layout) > MAX_QUERIED_ELEMENTS:
        return [
            LayoutQuestion("all three", f"skipped above {MAX_QUERIED_ELEMENTS:,} elements: use a tile of the layout")
        ]
    answers = [_answer_question(bank_conflicts(layout, element_bytes, threads))]
    if isinstance(value, ComposedLayout):  # only shared memory is swizzled, so the other two do not apply
        return answers
    answers.append(_answer_question(coalescing(layout, element_bytes, threads)))
    if rank(value) == 2 and size(value) <= MAX_SWIZZLE_SEARCH_ELEMENTS:
        try:
            answers.append(_answer_question(find_swizzle(value, element_bytes)))
        except LayoutError as error:
            answers.append(LayoutQuestion("swizzle", error.message))
    return answers


def _answer_question(value: BankConflicts | Coalescing | SwizzleSearchResult) -> LayoutQuestion:
    if isinstance(value, BankConflicts):
        return LayoutQuestion("bank conflicts", describe_bank_conflicts(value)[0], _scalar_fields(value))
    if isinstance(value, Coalescing):
        metrics = _scalar_fields(value) | {
            "sectors_per_request": value.sectors_per_request,
            "efficiency": value.efficiency,
        }
        return LayoutQuestion("coalescing", describe_coalescing(value)[0], metrics)
    metrics = {
        "smaller": len(value.smaller_swizzles),
        "inapplicable": value.num_inapplicable,
        "swizzle": str(value.swizzle),
        "layout": str(value.layout),
    }
    return LayoutQuestion("swizzle", "; ".join(describe_swizzle(value)), metrics)


def _scalar_fields(value: Any) -> dict[str, Any]:
    return {name: part for name, part in asdict(value).items() if not isinstance(part, tuple)}
