"""kw ladder: climb from a naive kernel to one beyond the library, rung by rung."""

from __future__ import annotations

from typing import Annotated

import typer

from kernelwright.cli.answer import DEVICES, Manner, answer
from kernelwright.cli.options import DebugOption, HtmlOption, JsonOption
from kernelwright.cli.steps import command
from kernelwright.core.errors import UsageError
from kernelwright.core.ladder import Climb


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

    def call() -> Climb:
        from kernelwright.commands.ladder_code import with_code

        return with_code(climbed()) if html else climbed()

    def climbed() -> Climb:
        from kernelwright.evidence.climbs import climb_or_recorded, recorded_climb

        which, sizes = rung or (), [_size(text) for text in size or ()]
        if recorded:
            return recorded_climb(name, recorded, which, sizes)
        if device and device not in DEVICES:
            raise UsageError(f"no device {device!r}; there are {', '.join(DEVICES)}", next=command("ladder", name))
        return climb_or_recorded(name, which, sizes, device)

    return answer("ladder", call, Climb, Manner(json, html, debug), _finish)


def _size(text: str) -> tuple[int, ...]:
    parts = text.split("x")
    if len(parts) not in (1, 3) or not all(part.isdigit() and len(part) < 7 for part in parts):
        raise UsageError(f"--size {text!r} is neither N nor MxNxK", next="--size 1024")
    numbers = [int(part) for part in parts]
    if 0 in numbers:
        raise UsageError(f"--size {text!r} has nothing to compute", next="--size 1024")
    return (numbers[0],) * 3 if len(numbers) == 1 else (numbers[0], numbers[1], numbers[2])


def _finish(found: Climb) -> tuple[str, list[str]]:
    rejected = [rung for rung in found.rungs if not rung.accepted]
    if not rejected:
        return "ok", [found.rungs[-1].next]
    advice = [f"fix rung {rung.number}, {rung.name}: {rung.reason}" for rung in rejected]
    return "finding", [*advice, command("ladder", found.ladder, options=["--rung", rejected[0].name])]
