"""`kw layout`: the result, the drawing, the questions, and how it came about."""

from __future__ import annotations

from kernelwright.core.layout import LayoutDrawing, LayoutEvaluation
from kernelwright.report.terminal.console import TerminalWriter

MAX_ROWS = 32
SHADES = ("grey15", "navy_blue", "dark_green", "deep_pink4", "purple4", "orange4", "dark_cyan", "grey35")
"""Backgrounds of the eight colours; the text on them is white."""


def write(found: LayoutEvaluation, paper: TerminalWriter) -> None:
    paper.print_paragraph(found.result, 0, "bold")
    if found.size is not None:
        elements = f"{found.size:,} element{'s' * (found.size != 1)}"
        depth = f", depth {found.depth}" if found.depth else ""
        paper.print_line((f"{elements}, offsets below {found.cosize:,}, rank {found.rank}{depth}", "dim"))
    for step in found.steps:
        paper.print_line()
        paper.print_paragraph(f"{step.call} = {step.result}", 2, first=["  "])
        for sentence in step.explanation:
            paper.print_paragraph(sentence, 4, "dim")
    if found.drawing:
        paper.print_line()
        _draw(found.drawing, paper)
    if found.questions and found.kind != "finding":
        paper.print_line()
        paper.print_line("  read as (thread, value) -> offset")
        wide = max(len(question.topic) for question in found.questions)
        for question in found.questions:
            paper.print_paragraph(question.answer, wide + 4, first=["  ", question.topic.ljust(wide), "  "])


def _draw(drawing: LayoutDrawing, paper: TerminalWriter) -> None:
    """The grid as far as the width allows; the row numbers stand on the left."""
    texts = [[cell.text + cell.subtext for cell in row] for row in drawing.cells]
    wide = max(len(text) for text in [*(text for row in texts for text in row), *drawing.columns]) + 2
    left = max(map(len, drawing.rows)) + 4
    fit = min(len(drawing.columns), (paper.width - left) // wide)
    paper.print_line(" " * left, ("".join(label.center(wide) for label in drawing.columns[:fit]), "dim"))
    for label, row, line in list(zip(drawing.rows, drawing.cells, texts, strict=True))[:MAX_ROWS]:
        cells = zip(row[:fit], line[:fit], strict=True)
        paper.print_line(
            (label.rjust(left - 2) + "  ", "dim"),
            *((text.rjust(wide - 1) + " ", f"white on {SHADES[cell.colour]}") for cell, text in cells),
        )
    paper.print_line("  ", (drawing.legend, "dim"))
    if fit < len(drawing.columns) or len(drawing.rows) > MAX_ROWS:
        shown = f"{min(MAX_ROWS, len(drawing.rows))}x{fit} of {len(drawing.rows)}x{len(drawing.columns)}"
        paper.print_line("  ", (f"{shown} cells are shown here; --svg draws more", "dim"))
    if drawing.truncation_note:
        paper.print_line("  ", (drawing.truncation_note, "dim"))
