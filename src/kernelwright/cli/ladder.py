"""kw ladder: from a naive kernel to one faster than the library, rung by rung."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from kernelwright import commands
from kernelwright.cli.options import DebugOption, HtmlOption, JsonOption
from kernelwright.cli.runner import OutputOptions, run_command
from kernelwright.core.errors import UsageError
from kernelwright.core.ladder import LadderRun


def ladder(
    name: Annotated[str, typer.Argument(help="Such as gemm_cpu.")],
    rung: Annotated[list[str] | None, typer.Option("--rung", help="A rung by number or name; may be repeated.")] = None,
    size: Annotated[
        list[str] | None,
        typer.Option("--size", help="Sizes to time in place of the ladder's own.", metavar="N or MxNxK"),
    ] = None,
    device: Annotated[
        str, typer.Option("--device", help="By default the ladder's own.", metavar="cpu|cuda|emulated")
    ] = "",
    recorded: Annotated[
        str | None,
        typer.Option(
            "--recorded", help="Show the recorded rows of this folder instead of measuring.", metavar="FOLDER"
        ),
    ] = None,
    json: JsonOption = False,
    html: HtmlOption = None,
    debug: DebugOption = False,
) -> int:
    """How does a kernel get from the formula to the library's speed? Verifies and times each rung against the library.

    Example: kw ladder gemm_cpu --size 512
    """
    command = partial(
        commands.ladder,
        name,
        rungs=rung or (),
        sizes=[_parse_size(text) for text in size or ()],
        device=device,
        recorded=recorded,
        machine_code=bool(html),
    )
    return run_command("ladder", command, LadderRun, OutputOptions(json, html, debug))


def _parse_size(text: str) -> tuple[int, ...]:
    parts = text.split("x")
    if len(parts) not in (1, 3) or not all(part.isdigit() and len(part) < 7 for part in parts):
        raise UsageError(f"--size {text!r} is neither N nor MxNxK", next="--size 1024")
    numbers = [int(part) for part in parts]
    if 0 in numbers:
        raise UsageError(f"--size {text!r} has nothing to compute", next="--size 1024")
    return (numbers[0],) * 3 if len(numbers) == 1 else (numbers[0], numbers[1], numbers[2])
