"""Records of `kw layout`: an evaluated layout expression, and a grid that `report` draws."""

from __future__ import annotations

from typing import NamedTuple

import msgspec


class Cell(NamedTuple):
    """A cell of a drawing: its text, the small text below it, and its colour (0 to 7)."""

    text: str
    subtext: str = ""
    colour: int = 0


class LayoutDrawing(msgspec.Struct, frozen=True):
    """A grid of cells: the text, the small text below it (may be empty) and the colour of each."""

    title: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    texts: tuple[tuple[str, ...], ...]
    subtexts: tuple[tuple[str, ...], ...]
    colours: tuple[tuple[int, ...], ...]
    legend: str = ""
    truncation_note: str = ""
    """What was left out for lack of space; empty if the drawing is complete."""

    @property
    def cells(self) -> list[list[Cell]]:
        """The cells, row by row."""
        subtexts = self.subtexts or tuple(("",) * len(row) for row in self.texts)
        rows = zip(self.texts, subtexts, self.colours, strict=True)
        return [[Cell(*one) for one in zip(*row, strict=True)] for row in rows]


class LayoutStep(msgspec.Struct, frozen=True):
    """One operation of an expression: the call, its result and an explanation in sentences."""

    call: str
    result: str
    explanation: tuple[str, ...] = ()


class LayoutQuestion(msgspec.Struct, frozen=True):
    """One of the three questions about a memory access, with its answer."""

    topic: str
    answer: str
    values: dict[str, float | int | str] = {}


class LayoutEvaluation(msgspec.Struct, frozen=True):
    """Result of `kw layout`.

    `kind` is layout, composed, thread-values, swizzle, number, tuple or finding. `shape` to `depth` are None unless
    it is a layout.
    """

    expression: str
    kind: str
    result: str
    steps: tuple[LayoutStep, ...] = ()
    shape: str | None = None
    stride: str | None = None
    size: int | None = None
    cosize: int | None = None
    rank: int | None = None
    depth: int | None = None
    questions: tuple[LayoutQuestion, ...] = ()
    drawing: LayoutDrawing | None = None


class FragmentOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """One operand of an instruction: the elements that the layout predicted, checked against the hardware."""

    instruction: str
    operand: str
    layout: str
    elements: int
    """Number of predicted elements."""
    mismatches: int


class AccessOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """One access: the prediction of `bank_conflicts` or `coalescing`, and the hardware counter."""

    memory: str
    """shared or global."""
    layout: str
    access_bytes: int
    predicted: int
    """Wavefronts, or sectors."""
    measured: int
