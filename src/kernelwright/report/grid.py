"""The drawing of a layout as SVG: one picture that needs nothing else, light and dark."""

from __future__ import annotations

from kernelwright.core.layout import LayoutDrawing
from kernelwright.report.drawing import render_template

CHAR_WIDTH, MIN_CELL_WIDTH, CELL_HEIGHT = 7.2, 30, 26


def render_layout_svg(drawing: LayoutDrawing, *, standalone: bool = True) -> str:
    """The drawing.

    Args:
        standalone: with its own colours and background, as a file; without, for a page that has them.
    """
    longest = max(len(cell.text) for row in drawing.cells for cell in row)
    longest = max(longest, *(len(label) for label in drawing.columns))
    under = any(cell.subtext for row in drawing.cells for cell in row)
    width = max(MIN_CELL_WIDTH, round(longest * CHAR_WIDTH + 8))
    height = CELL_HEIGHT + 10 * under
    left = max(len(label) for label in drawing.rows) * 7 + 12
    return render_template(
        "layout.svg.j2", drawing=drawing, alone=standalone, cell=(width, height), left=left, top=44, under=under
    )
