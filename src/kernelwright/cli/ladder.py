"""kw ladder: climb from a naive kernel to one beyond the library, rung by rung."""

from __future__ import annotations

from typing import Annotated

import typer

from kernelwright.cli.options import DebugOption, HtmlOption, JsonOption
from kernelwright.cli.runner import DEVICES, OutputOptions, run_command
from kernelwright.cli.steps import format_command
from kernelwright.core.errors import UsageError
from kernelwright.core.ladder import LadderRun


def ladder(
    name: Annotated[str, typer.Argument(help="Such as gemm_cpu.")],
    rung: Annotated[list[str] | None, typer.Option("--rung", help="A rung by number or name; may be repeated.")] = None,
    size: Annotated[
        list[str] | None, typer.Option("--size", help="In place of its own sizes.", metavar="N or MxNxK")
    ] = None,
    device: Annotated[
        str, typer.Option("--device", help="By default where the ladder stands.", metavar="cpu|cuda|emulated")
    ] = "",
    recorded: Annotated[
        str | None, typer.Option("--recorded", help="Show the record in this folder instead.", metavar="FOLDER")
    ] = None,
    json: JsonOption = False,
    html: HtmlOption = None,
    debug: DebugOption = False,
) -> int:
    """How does a kernel get from the formula to the library's speed? Verifies and times each rung beside it.

    Example: kw ladder gemm_cpu --size 512
    """

    def call() -> LadderRun:
        from kernelwright.commands.ladder_code import add_machine_code

        return add_machine_code(climbed()) if html else climbed()

    def climbed() -> LadderRun:
        from kernelwright.evidence.ladder_runs import load_recorded_run, run_or_load_ladder

        which, sizes = rung or (), [_parse_size(text) for text in size or ()]
        if recorded:
            return load_recorded_run(name, recorded, which, sizes)
        if device and device not in DEVICES:
            raise UsageError(
                f"no device {device!r}; there are {', '.join(DEVICES)}", next=format_command("ladder", name)
            )
        return run_or_load_ladder(name, which, sizes, device)

    return run_command("ladder", call, LadderRun, OutputOptions(json, html, debug), _finish)


def _parse_size(text: str) -> tuple[int, ...]:
    parts = text.split("x")
    if len(parts) not in (1, 3) or not all(part.isdigit() and len(part) < 7 for part in parts):
        raise UsageError(f"--size {text!r} is neither N nor MxNxK", next="--size 1024")
    numbers = [int(part) for part in parts]
    if 0 in numbers:
        raise UsageError(f"--size {text!r} has nothing to compute", next="--size 1024")
    return (numbers[0],) * 3 if len(numbers) == 1 else (numbers[0], numbers[1], numbers[2])


def _finish(found: LadderRun) -> tuple[str, list[str]]:
    rejected = [rung for rung in found.rungs if not rung.accepted]
    if not rejected:
        return "ok", [found.rungs[-1].next]
    advice = [f"fix rung {rung.number}, {rung.name}: {rung.reason}" for rung in rejected]
    return "finding", [*advice, format_command("ladder", found.ladder, options=["--rung", rejected[0].name])]
