"""kw layout: the layout algebra, evaluated, explained and drawn."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from kernelwright.cli.options import DebugOption, HtmlOption, JsonOption
from kernelwright.cli.runner import OutputOptions, run_command
from kernelwright.core.errors import UsageError
from kernelwright.core.layout import LayoutEvaluation


def layout(
    expression: Annotated[str, typer.Argument(help='Such as "composition((6,2):(8,2), (4,3):(3,1))".')],
    element_bytes: Annotated[
        int, typer.Option("--element-bytes", help="Size of an element.", metavar="1|2|4|8|16")
    ] = 4,
    threads: Annotated[
        int | None, typer.Option("--threads", help="How many of the first mode are threads; all when left out.")
    ] = None,
    tile: Annotated[
        str | None,
        typer.Option("--tile", help="The result is (thread, value) over such a matrix.", metavar="ROWSxCOLUMNS"),
    ] = None,
    colour: Annotated[
        str, typer.Option("--colour", help="What the colours say.", metavar="offset|bank|line|thread")
    ] = "offset",
    svg: Annotated[str | None, typer.Option("--svg", help="Also write the drawing.", metavar="FILE")] = None,
    json: JsonOption = False,
    html: HtmlOption = None,
    debug: DebugOption = False,
) -> int:
    """What does this layout do? Evaluates an expression of the layout algebra, explains each step, and draws it.

    Example: kw layout "logical_divide((4,2,3):(2,1,8), 4:2)"

    Example: kw layout mma.m16n8k16.bf16.A --svg fragment.svg
    """

    import kernelwright.layouts.errors  # noqa: F401 - so that the child's error is known here by its code

    def call() -> LayoutEvaluation:
        from kernelwright.layouts.queries import explain

        found = explain(expression, element_bytes=element_bytes, threads=threads, tile=_parse_tile(tile), colour=colour)
        if svg:
            _write_svg(found, Path(svg))
        return found

    return run_command("layout", call, LayoutEvaluation, OutputOptions(json, html, debug))


def _parse_tile(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    if not (found := re.fullmatch(r"([1-9][0-9]{0,8})x([1-9][0-9]{0,8})", text)):
        raise UsageError(f"--tile {text!r} is not ROWSxCOLUMNS", next="--tile 16x8")
    return int(found[1]), int(found[2])


def _write_svg(found: LayoutEvaluation, path: Path) -> None:
    from kernelwright.report.grid import render_layout_svg

    if found.drawing is None:
        raise UsageError(f"{found.result} is no layout that could be drawn", next="leave --svg out")
    try:
        path.write_text(render_layout_svg(found.drawing), encoding="utf-8")
    except OSError as fault:
        raise UsageError(
            f"cannot write {path}: {fault.strerror}", next="name a file in a folder that exists"
        ) from fault
