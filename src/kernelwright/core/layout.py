"""The records of `kw layout`: an expression worked out, and a grid that `report` can draw."""

from __future__ import annotations

from typing import NamedTuple

import msgspec


class Cell(NamedTuple):
    """A square of a drawing: what stands in it, what stands small below, and which colour it has (0 to 7)."""

    text: str
    subtext: str = ""
    colour: int = 0


class LayoutDrawing(msgspec.Struct, frozen=True):
    """A grid of cells: what stands in each, what stands small below (nothing where that is empty), its colour."""

    title: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    texts: tuple[tuple[str, ...], ...]
    subtexts: tuple[tuple[str, ...], ...]
    colours: tuple[tuple[int, ...], ...]
    legend: str = ""
    truncation_note: str = ""
    """What does not fit, in words; empty when all of it is drawn."""

    @property
    def cells(self) -> list[list[Cell]]:
        """Row by row."""
        under = self.subtexts or tuple(("",) * len(row) for row in self.texts)
        rows = zip(self.texts, under, self.colours, strict=True)
        return [[Cell(*one) for one in zip(*row, strict=True)] for row in rows]


class LayoutStep(msgspec.Struct, frozen=True):
    """One operation of an expression: the call, its result, and why in sentences."""

    call: str
    result: str
    explanation: tuple[str, ...] = ()


class LayoutQuestion(msgspec.Struct, frozen=True):
    """One of the three questions about an access, answered."""

    topic: str
    answer: str
    values: dict[str, float | int | str] = {}


class LayoutEvaluation(msgspec.Struct, frozen=True):
    """What `kw layout` found.

    `kind` is layout, composed, thread-values, swizzle, number, tuple or finding; the figures of a layout are None for
    the others.
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
    """One operand of an instruction: what the layout said, against what the instruction did."""

    instruction: str
    operand: str
    layout: str
    elements: int
    """How many were predicted, one by one."""
    mismatches: int


class AccessOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """One access: what `bank_conflicts` or `coalescing` said, against the hardware's counter."""

    memory: str
    """shared or global."""
    layout: str
    access_bytes: int
    predicted: int
    """Passes over the banks, or sectors."""
    measured: int
