"""kw verify: is the candidate right."""

from __future__ import annotations

from typing import Annotated

import typer

from kernelwright.cli.options import (
    BuildTimeOption,
    DebugOption,
    DeviceOption,
    HtmlOption,
    JsonOption,
    PolicyOption,
    SeedOption,
    SpecOption,
    TimeOption,
    ToleranceOption,
    parse_policy,
    parse_tolerance,
)
from kernelwright.cli.runner import OutputOptions, rerun_command, resolve_device, run_command
from kernelwright.cli.steps import format_command
from kernelwright.core.records import Verdict


def verify(
    problem: Annotated[str, typer.Argument(help="A problem: FILE, FILE:FUNCTION or MODULE:FUNCTION.")],
    candidate: Annotated[str, typer.Argument(help="A candidate: a Python file, or a .cpp with a kw: header.")],
    device: DeviceOption = "cpu",
    tolerance: ToleranceOption = None,
    policy: PolicyOption = "any",
    call_timeout_s: TimeOption = 60.0,
    build_timeout_s: BuildTimeOption = 300.0,
    seed: SeedOption = None,
    spec: SpecOption = None,
    json: JsonOption = False,
    html: HtmlOption = None,
    debug: DebugOption = False,
) -> int:
    """Is this candidate right? Accepted, or rejected with one named reason and the evidence.

    Example: kw verify examples/softmax.py examples/wrong/softmax_fp16.py
    """

    def call() -> Verdict:
        from kernelwright.verification import verify

        options = {
            "tolerance": parse_tolerance(tolerance),
            "call_timeout_s": call_timeout_s,
            "build_timeout_s": build_timeout_s,
            "seed": seed,
            "spec": spec,
            "own_kernels": parse_policy(policy),
        }
        return verify(problem, candidate, device=resolve_device(device), check_problem=True, **options)

    def finish(found: Verdict) -> tuple[str, list[str]]:
        if found.accepted:  # the time of an emulation says nothing
            verb = "why" if device == "emulated" else "bench"
            options = ["--spec", spec] if spec else []
            return "ok", [format_command(verb, problem, candidate, device=device, options=options)]
        advice = f"fix {candidate}: {found.reason.detail if found.reason else ''}"
        first = [format_command("why", problem, candidate, device=device)] if device == "emulated" else []
        return "finding", [*first, rerun_command(), advice]

    return run_command("verify", call, Verdict, OutputOptions(json, html, debug), finish)
