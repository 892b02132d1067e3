"""`kw layout`: evaluate, explain and draw an expression of the layout algebra."""

from __future__ import annotations

from pathlib import Path

from kernelwright.commands.result import CommandResult
from kernelwright.core.errors import UsageError
from kernelwright.core.layout import LayoutEvaluation


def layout(
    expression: str,
    *,
    element_bytes: int = 4,
    threads: int | None = None,
    tile: tuple[int, int] | None = None,
    colour: str = "offset",
    svg: str | None = None,
) -> CommandResult[LayoutEvaluation]:
    """Evaluates an expression.

    Args:
        expression: such as `composition((6,2):(8,2), (4,3):(3,1))`, or the name of an atom's operand.
        element_bytes: 1, 2, 4, 8 or 16.
        threads: how many coordinates of the first mode are threads; all by default.
        tile: (rows, columns) of the matrix that a (thread, value) layout covers.
        colour: `offset`, `bank`, `line` or `thread`.
        svg: also write the drawing to this file.
    Raises:
        LayoutError: the expression is invalid. UsageError: the file cannot be written, or there is nothing to draw.
    """
    from kernelwright.layouts.queries import explain

    found = explain(expression, element_bytes=element_bytes, threads=threads, tile=tile, colour=colour)
    if svg:
        _write_svg(found, Path(svg))
    return CommandResult(found)


def _write_svg(found: LayoutEvaluation, path: Path) -> None:
    from kernelwright.report.grid import render_layout_svg

    if found.drawing is None:
        raise UsageError(f"{found.result} is not a layout that can be drawn", next="leave --svg out")
    try:
        path.write_text(render_layout_svg(found.drawing), encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"cannot write {path}: {error.strerror}", next="name a file in a folder that exists"
        ) from error
