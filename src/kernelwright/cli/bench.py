"""kw bench: is the candidate faster, by how much, and how far from the floor."""

from __future__ import annotations

from typing import Annotated

import typer

from kernelwright.cli.answer import Manner, answer, choose_device
from kernelwright.cli.options import (
    BuildTimeOption,
    DebugOption,
    DeviceOption,
    HtmlOption,
    JsonOption,
    SeedOption,
    SpecOption,
)
from kernelwright.core.records import Bench


def bench(
    problem: Annotated[str, typer.Argument(help="A problem: FILE, FILE:FUNCTION or MODULE:FUNCTION.")],
    candidates: Annotated[list[str], typer.Argument(help="One candidate or more.")],
    baseline: Annotated[
        str, typer.Option("--baseline", help="What to compare with: eager, compile.")
    ] = "eager,compile",
    device: DeviceOption = "cpu",
    pairs: Annotated[int, typer.Option("--pairs", help="Fresh process pairs, five at least.")] = 7,
    check: Annotated[bool, typer.Option("--check/--no-check", help="Verify each candidate before it is timed.")] = True,
    build_s: BuildTimeOption = 300.0,
    seed: SeedOption = None,
    spec: SpecOption = None,
    json: JsonOption = False,
    html: HtmlOption = None,
    debug: DebugOption = False,
) -> int:
    """Is this candidate faster? Times in fresh process pairs beside the floor, with the interval of the ratio.

    Example: kw bench examples/softmax.py examples/softmax.cpp
    """

    def deed() -> Bench:
        from kernelwright.judge import bench

        where = choose_device(device)
        options = {"device": where, "pairs": pairs, "check": check, "spec": spec, "build_s": build_s, "seed": seed}
        return bench(problem, *candidates, baselines=baseline.split(","), **options)

    return answer("bench", deed, Bench, Manner(json, html, debug), _finish)


def _finish(found: Bench) -> tuple[str, list[str]]:
    rejected = [f"mend {v.candidate}: {v.reason.detail}" for v in found.verdicts if v.reason]
    suspicious = [f"check {arm.name}: {arm.suspicious}" for arm in found.arms if arm.suspicious]
    slower = [f"{c.a} is slower than {c.b}: kw why it" for c in found.comparisons if c.verdict == "SLOWER"]
    unclear = [f"{c.a} against {c.b} is unclear: --pairs 21" for c in found.comparisons if c.verdict == "UNCLEAR"]
    return ("finding" if rejected or suspicious or slower else "ok"), [*rejected, *suspicious, *slower, *unclear]
