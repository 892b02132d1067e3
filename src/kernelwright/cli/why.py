"""kw why: what limits a program, how far it is from its floor, what to do next."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from kernelwright import commands
from kernelwright.cli.options import DebugOption, DeviceOption, HtmlOption, JsonOption, SpecOption
from kernelwright.cli.runner import OutputOptions, run_command
from kernelwright.core.diagnosis import Diagnosis
from kernelwright.core.emulation import Emulation


def why(
    target: Annotated[
        list[str], typer.Argument(help="PROBLEM [CANDIDATE], or -- python SCRIPT ARGS to profile a script.")
    ],
    device: DeviceOption = "cpu",
    spec: SpecOption = None,
    compiled: Annotated[bool, typer.Option("--compile", help="Diagnose the program as torch.compile runs it.")] = False,
    limit_s: Annotated[
        float | None,
        typer.Option("--limit", help="Longest time of one run, in seconds: 120 for a problem, none for a script."),
    ] = None,
    json: JsonOption = False,
    html: HtmlOption = None,
    debug: DebugOption = False,
) -> int:
    """What limits this program? Its regime, its floors, and recommendations with predicted times.

    Example: kw why examples/softmax.py --html softmax.html
    """
    output = OutputOptions(json, html, debug)
    if device == "emulated":
        return run_command("why", partial(commands.why_emulated, target, timeout_s=limit_s), Emulation, output)
    command = partial(commands.why, target, device=device, spec=spec, compiled=compiled, timeout_s=limit_s)
    return run_command("why", command, Diagnosis, output)
