"""kw layout: the layout algebra, evaluated, explained and drawn."""

from __future__ import annotations

import re
from functools import partial
from typing import Annotated

import typer

from kernelwright import commands
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
        int | None,
        typer.Option("--threads", help="How many coordinates of the first mode are threads; all by default."),
    ] = None,
    tile: Annotated[
        str | None,
        typer.Option("--tile", help="Size of the matrix that a (thread, value) layout covers.", metavar="ROWSxCOLUMNS"),
    ] = None,
    colour: Annotated[
        str, typer.Option("--colour", help="What the colours show.", metavar="offset|bank|line|thread")
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

    import kernelwright.layouts.errors  # noqa: F401 - registers the code of the child's error

    command = partial(
        commands.layout,
        expression,
        element_bytes=element_bytes,
        threads=threads,
        tile=_parse_tile(tile),
        colour=colour,
        svg=svg,
    )
    return run_command("layout", command, LayoutEvaluation, OutputOptions(json, html, debug))


def _parse_tile(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    if not (found := re.fullmatch(r"([1-9][0-9]{0,8})x([1-9][0-9]{0,8})", text)):
        raise UsageError(f"--tile {text!r} is not ROWSxCOLUMNS", next="--tile 16x8")
    return int(found[1]), int(found[2])
