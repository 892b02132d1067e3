"""kw why: what a program waits on, how far it is from the floor, what to do next."""

from __future__ import annotations

import re
import shlex
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from kernelwright.cli.options import DebugOption, DeviceOption, HtmlOption, JsonOption, SpecOption
from kernelwright.cli.runner import OutputOptions, rerun_command, resolve_device, run_command
from kernelwright.cli.steps import format_command
from kernelwright.core.emulation import Emulation
from kernelwright.core.errors import UsageError
from kernelwright.core.records import Diagnosis


def why(
    target: Annotated[
        list[str], typer.Argument(help="PROBLEM [CANDIDATE], or -- python SCRIPT ARGS to watch code that is running.")
    ],
    device: DeviceOption = "cpu",
    spec: SpecOption = None,
    compiled: Annotated[bool, typer.Option("--compile", help="Read the program as torch.compile runs it.")] = False,
    limit_s: Annotated[
        float | None,
        typer.Option("--limit", help="Longest time of one run, in seconds: 120 for a problem, none for a script."),
    ] = None,
    json: JsonOption = False,
    html: HtmlOption = None,
    debug: DebugOption = False,
) -> int:
    """What does this program wait on? Its regime, its floors, and the next moves with their predicted times.

    Example: kw why examples/softmax.py --html softmax.html
    """

    def call() -> Diagnosis:
        from kernelwright.diagnosis import is_python_command, watch_script, why_files

        where = resolve_device(device)
        options = {} if limit_s is None else {"limit_s": limit_s}
        if is_python_command(target):
            _reject_script_options({"--spec": spec, "--compile": compiled})
            return watch_script(target, device=where, **options)
        return why_files(target, device=where, spec=spec, compiled=compiled, **options)

    if device == "emulated":
        steps = partial(_finish_emulated, target)
        return run_command(
            "why", partial(_why_emulated, target, limit_s), Emulation, OutputOptions(json, html, debug), steps
        )
    on_spec = bool(spec)
    return run_command(
        "why", call, Diagnosis, OutputOptions(json, html, debug), partial(_finish, target, device, on_spec)
    )


def _why_emulated(target: list[str], limit_s: float | None) -> Emulation:
    from kernelwright.hwcheck.emulation import TIME_LIMIT_S, diagnose_emulated

    if len(target) != 2:
        raise UsageError(
            "emulation needs a problem and its candidate in CUDA C++",
            next="name both: kw why PROBLEM kernel.cu --device emulated",
        )
    problem, candidate = target
    return diagnose_emulated(problem, candidate, TIME_LIMIT_S if limit_s is None else limit_s)


def _finish_emulated(target: list[str], found: Emulation) -> tuple[str, list[str]]:
    verify = format_command("verify", *target, device="emulated")
    return ("finding" if found.sanitizer_findings else "ok"), [verify, *(move.action for move in found.recommendations)]


def _reject_script_options(options: dict[str, Any]) -> None:
    if given := [name for name, value in options.items() if value]:
        message = f"{' and '.join(given)} cannot be had for a script: it is watched as it runs, here"
        raise UsageError(message, next=f"leave {' and '.join(given)} out, or name a problem file instead of a script")


def _finish(target: list[str], device: str, on_spec: bool, found: Diagnosis) -> tuple[str, list[str]]:
    """Every move in words, and as a command where one makes it: fusing a problem, or variables of the environment."""
    steps = []
    for move in found.recommendations:
        if move.kind == "fuse" and len(target) == 1 and not on_spec:
            steps.append(format_command("optimize", *target, device=device))
        if move.command and not on_spec:
            rerun = shlex.join(target) if re.fullmatch(r"python[\d.]*", Path(target[0]).name) else rerun_command()
            steps.append(move.command.replace("python ...", rerun))
        steps.append(move.action)
    return "ok", steps
