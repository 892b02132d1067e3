"""kw verify: is the candidate right?"""

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
    PolicyOption,
    SeedOption,
    SpecOption,
    TimeOption,
    ToleranceOption,
    parse_policy,
    parse_tolerance,
)
from kernelwright.cli.runner import OutputOptions, run_command
from kernelwright.core.verdict import Verdict


def verify(
    problem: Annotated[str, typer.Argument(help="A problem: FILE, FILE:FUNCTION or MODULE:FUNCTION.")],
    candidate: Annotated[str, typer.Argument(help="A candidate: a Python file, or a .cpp with a kw: header.")],
    device: DeviceOption = "cpu",
    tolerance: ToleranceOption = None,
    policy: PolicyOption = "any",
    fresh_outputs: Annotated[
        bool, typer.Option("--fresh-outputs", help="Reject a candidate that overwrites its output in the next call.")
    ] = False,
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
    return run_command(
        "verify",
        partial(
            commands.verify,
            problem,
            candidate,
            device=device,
            tolerance=parse_tolerance(tolerance),
            own_kernels=parse_policy(policy),
            fresh_outputs=fresh_outputs,
            call_timeout_s=call_timeout_s,
            build_timeout_s=build_timeout_s,
            seed=seed,
            spec=spec,
        ),
        Verdict,
        OutputOptions(json, html, debug),
    )
