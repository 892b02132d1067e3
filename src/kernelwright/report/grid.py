"""Layout drawings as SVG, with light and dark colours."""

from __future__ import annotations

from kernelwright.core.layout import LayoutDrawing
from kernelwright.report.drawing import render_template

CHAR_WIDTH, MIN_CELL_WIDTH, CELL_HEIGHT = 7.2, 30, 26


def render_layout_svg(drawing: LayoutDrawing, *, standalone: bool = True) -> str:
    """Render a layout drawing as SVG.

    Args:
        standalone: include title, background and size, for a file; else for a page.
    """
    longest = max(len(cell.text) for row in drawing.cells for cell in row)
    longest = max(longest, *(len(label) for label in drawing.columns))
    has_subtext = any(cell.subtext for row in drawing.cells for cell in row)
    width = max(MIN_CELL_WIDTH, round(longest * CHAR_WIDTH + 8))
    height = CELL_HEIGHT + 10 * has_subtext
    left = max(len(label) for label in drawing.rows) * 7 + 12
    return render_template(
        "layout.svg.j2",
        drawing=drawing,
        standalone=standalone,
        cell=(width, height),
        left=left,
        top=44,
        has_subtext=has_subtext,
    )
