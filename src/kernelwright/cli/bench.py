"""kw bench: is the candidate faster, by how much, and how far from the floor."""

from __future__ import annotations

from typing import Annotated

import typer

from kernelwright.cli.options import (
    BuildTimeOption,
    DebugOption,
    DeviceOption,
    HtmlOption,
    JsonOption,
    SeedOption,
    SpecOption,
)
from kernelwright.cli.runner import OutputOptions, rerun_command, resolve_device, run_command
from kernelwright.cli.steps import find_candidate_file, format_command
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
    build_timeout_s: BuildTimeOption = 300.0,
    seed: SeedOption = None,
    spec: SpecOption = None,
    json: JsonOption = False,
    html: HtmlOption = None,
    debug: DebugOption = False,
) -> int:
    """Is this candidate faster? Times in fresh process pairs beside the floor, with the interval of the ratio.

    Example: kw bench examples/softmax.py examples/softmax.cpp
    """

    def call() -> Bench:
        from kernelwright.benchmark import bench

        where = resolve_device(device)
        options = {
            "device": where,
            "pairs": pairs,
            "check": check,
            "spec": spec,
            "build_timeout_s": build_timeout_s,
            "seed": seed,
        }
        return bench(problem, *candidates, baselines=baseline.split(","), **options)

    def finish(found: Bench) -> tuple[str, list[str]]:
        is_finding, advice = _advice(found)
        wrong = [v.candidate for v in found.verdicts if v.reason]
        wrong += [arm.name for arm in found.variants if arm.suspicious]
        slow = [c.variant for c in found.comparisons if c.verdict == "SLOWER"]
        steps = [
            format_command(verb, problem, file, device=device)
            for verb, names in (("verify", wrong), ("why", slow))
            for name in names
            if (file := find_candidate_file(name, candidates))
        ]
        if any(c.verdict == "UNCLEAR" for c in found.comparisons):
            steps.append(rerun_command("--pairs 21"))
        return ("finding" if is_finding else "ok"), [*dict.fromkeys(steps), *advice]

    return run_command("bench", call, Bench, OutputOptions(json, html, debug), finish)


def _advice(found: Bench) -> tuple[bool, list[str]]:
    """Whether there is a finding, and what there is to do, in sentences."""
    rejected = [f"fix {v.candidate}: {v.reason.detail}" for v in found.verdicts if v.reason]
    suspicious = [f"check {arm.name}: {arm.suspicious}" for arm in found.variants if arm.suspicious]
    slower = [
        f"{c.variant} is slower than {c.baseline}: see what it waits on"
        for c in found.comparisons
        if c.verdict == "SLOWER"
    ]
    unclear = [
        f"{c.variant} against {c.baseline} is unclear: take more pairs"
        for c in found.comparisons
        if c.verdict == "UNCLEAR"
    ]
    return bool(rejected or suspicious or slower), [*rejected, *suspicious, *slower, *unclear]
