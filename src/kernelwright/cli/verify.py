"""kw verify: is the candidate right."""

from __future__ import annotations

from typing import Annotated

import typer

from kernelwright.cli.answer import Manner, again, answer, choose_device
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
    owns_kernels,
    tolerance_of,
)
from kernelwright.cli.steps import command
from kernelwright.core.records import Verdict


def verify(
    problem: Annotated[str, typer.Argument(help="A problem: FILE, FILE:FUNCTION or MODULE:FUNCTION.")],
    candidate: Annotated[str, typer.Argument(help="A candidate: a Python file, or a .cpp with a kw: header.")],
    device: DeviceOption = "cpu",
    tolerance: ToleranceOption = None,
    policy: PolicyOption = "any",
    time_s: TimeOption = 60.0,
    build_s: BuildTimeOption = 300.0,
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
            "tolerance": tolerance_of(tolerance),
            "time_s": time_s,
            "build_s": build_s,
            "seed": seed,
            "spec": spec,
            "own_kernels": owns_kernels(policy),
        }
        return verify(problem, candidate, device=choose_device(device), question=True, **options)

    def finish(found: Verdict) -> tuple[str, list[str]]:
        if found.accepted:  # the time of an emulation says nothing
            verb = "why" if device == "emulated" else "bench"
            options = ["--spec", spec] if spec else []
            return "ok", [command(verb, problem, candidate, device=device, options=options)]
        advice = f"fix {candidate}: {found.reason.detail if found.reason else ''}"
        first = [command("why", problem, candidate, device=device)] if device == "emulated" else []
        return "finding", [*first, again(), advice]

    return answer("verify", call, Verdict, Manner(json, html, debug), finish)
