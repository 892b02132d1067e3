"""The drawing of a layout as SVG: one picture that needs nothing else, light and dark."""

from __future__ import annotations

from kernelwright.core.layout import LayoutDrawing
from kernelwright.report.drawing import render

WIDTH_OF_A_LETTER, LEAST_WIDTH, HEIGHT = 7.2, 30, 26


def svg(drawing: LayoutDrawing, *, alone: bool = True) -> str:
    """The drawing.

    Args:
        alone: with its own colours and background, as a file; without, for a page that has them.
    """
    longest = max(len(cell.text) for row in drawing.cells for cell in row)
    longest = max(longest, *(len(label) for label in drawing.columns))
    under = any(cell.under for row in drawing.cells for cell in row)
    width = max(LEAST_WIDTH, round(longest * WIDTH_OF_A_LETTER + 8))
    height = HEIGHT + 10 * under
    left = max(len(label) for label in drawing.rows) * 7 + 12
    return render("layout.svg.j2", drawing=drawing, alone=alone, cell=(width, height), left=left, top=44, under=under)
