"""`kw layout`: the result, its derivation, the drawing, and the questions on memory accesses."""

from __future__ import annotations

from kernelwright.core.layout import LayoutDrawing, LayoutEvaluation
from kernelwright.report.terminal.console import TerminalWriter

MAX_ROWS = 32
SHADES = ("grey15", "navy_blue", "dark_green", "deep_pink4", "purple4", "orange4", "dark_cyan", "grey35")
"""Backgrounds of the eight colours; the text on them is white."""


def write(evaluation: LayoutEvaluation, writer: TerminalWriter) -> None:
    """Write an evaluated layout expression."""
    writer.print_paragraph(evaluation.result, 0, "bold")
    if evaluation.size is not None:
        elements = f"{evaluation.size:,} element{'s' * (evaluation.size != 1)}"
        depth = f", depth {evaluation.depth}" if evaluation.depth else ""
        writer.print_line((f"{elements}, offsets below {evaluation.cosize:,}, rank {evaluation.rank}{depth}", "dim"))
    for step in evaluation.steps:
        writer.print_line()
        writer.print_paragraph(f"{step.call} = {step.result}", 2, first=["  "])
        for sentence in step.explanation:
            writer.print_paragraph(sentence, 4, "dim")
    if evaluation.drawing:
        writer.print_line()
        _draw(evaluation.drawing, writer)
    if evaluation.questions and evaluation.kind != "finding":
        writer.print_line()
        writer.print_line("  read as (thread, value) -> offset")
        topic_width = max(len(question.topic) for question in evaluation.questions)
        for question in evaluation.questions:
            first = ["  ", question.topic.ljust(topic_width), "  "]
            writer.print_paragraph(question.answer, topic_width + 4, first=first)


def _draw(drawing: LayoutDrawing, writer: TerminalWriter) -> None:
    """Write the grid with row labels, truncated to the width."""
    texts = [[cell.text + cell.subtext for cell in row] for row in drawing.cells]
    cell_width = max(len(text) for text in [*(text for row in texts for text in row), *drawing.columns]) + 2
    label_width = max(map(len, drawing.rows)) + 4
    num_columns = min(len(drawing.columns), (writer.width - label_width) // cell_width)
    columns = "".join(label.center(cell_width) for label in drawing.columns[:num_columns])
    writer.print_line(" " * label_width, (columns, "dim"))
    for label, row, line in list(zip(drawing.rows, drawing.cells, texts, strict=True))[:MAX_ROWS]:
        cells = zip(row[:num_columns], line[:num_columns], strict=True)
        writer.print_line(
            (label.rjust(label_width - 2) + "  ", "dim"),
            *((text.rjust(cell_width - 1) + " ", f"white on {SHADES[cell.colour]}") for cell, text in cells),
        )
    writer.print_line("  ", (drawing.legend, "dim"))
    if num_columns < len(drawing.columns) or len(drawing.rows) > MAX_ROWS:
        shown = f"{min(MAX_ROWS, len(drawing.rows))}x{num_columns} of {len(drawing.rows)}x{len(drawing.columns)}"
        writer.print_line("  ", (f"{shown} cells shown; --svg draws more", "dim"))
    if drawing.truncation_note:
        writer.print_line("  ", (drawing.truncation_note, "dim"))
