"""kw bench: is the candidate faster, by how much, and how far from the floor."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from kernelwright import commands
from kernelwright.cli.options import (
    BuildTimeOption,
    DebugOption,
    DeviceOption,
    HtmlOption,
    JsonOption,
    SeedOption,
    SpecOption,
)
from kernelwright.cli.runner import OutputOptions, run_command
from kernelwright.core.bench import Bench


def bench(
    problem: Annotated[str, typer.Argument(help="A problem: FILE, FILE:FUNCTION or MODULE:FUNCTION.")],
    candidates: Annotated[list[str], typer.Argument(help="One candidate or more.")],
    baseline: Annotated[str, typer.Option("--baseline", help="Baselines: eager, compile.")] = "eager,compile",
    device: DeviceOption = "cpu",
    pairs: Annotated[int, typer.Option("--pairs", help="Fresh process pairs, at least five.")] = 7,
    check: Annotated[bool, typer.Option("--check/--no-check", help="Verify each candidate before it is timed.")] = True,
    build_timeout_s: BuildTimeOption = 300.0,
    seed: SeedOption = None,
    spec: SpecOption = None,
    json: JsonOption = False,
    html: HtmlOption = None,
    debug: DebugOption = False,
) -> int:
    """Is this candidate faster? Times in fresh process pairs, the floor, and the speedup with its confidence interval.

    Example: kw bench examples/softmax.py examples/softmax.cpp
    """
    return run_command(
        "bench",
        partial(
            commands.bench,
            problem,
            candidates,
            baselines=baseline.split(","),
            device=device,
            pairs=pairs,
            check=check,
            build_timeout_s=build_timeout_s,
            seed=seed,
            spec=spec,
        ),
        Bench,
        OutputOptions(json, html, debug),
    )
