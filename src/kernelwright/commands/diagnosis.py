"""`kw why`: what limits the program?"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from kernelwright.commands.result import CommandResult, format_command, select_device
from kernelwright.core.commands import rerun_command
from kernelwright.core.diagnosis import Diagnosis
from kernelwright.core.emulation import Emulation
from kernelwright.core.errors import UsageError


def why(
    target: Sequence[str],
    *,
    device: str = "cpu",
    spec: str | None = None,
    compiled: bool = False,
    timeout_s: float | None = None,
) -> CommandResult[Diagnosis]:
    """Diagnoses a program.

    Args:
        target: a problem; a problem and a candidate, which is diagnosed then; or the words of a Python command, which
            is run and profiled.
        spec: the name of a datasheet: everything is predicted for that machine, nothing is timed.
        compiled: diagnose the program as torch.compile runs it.
        timeout_s: of one run; by default 120 for a problem, none for a script.
    Raises:
        UsageError: more than two targets, or options that a script does not take. ProblemError: the program raised.
    """
    from kernelwright.diagnosis import is_python_command, watch_script, why_files
    from kernelwright.diagnosis.why import RUN_LIMIT_S

    where = select_device(device)
    if is_python_command(target):
        _reject_script_options(spec, compiled)
        found = watch_script(target, device=where, limit_s=timeout_s)
    else:
        limit_s = RUN_LIMIT_S if timeout_s is None else timeout_s
        found = why_files(target, device=where, spec=spec, compiled=compiled, limit_s=limit_s)
    return CommandResult(found, next=tuple(_next_steps(target, device, bool(spec), found)))


def why_emulated(target: Sequence[str], *, timeout_s: float | None = None) -> CommandResult[Emulation]:
    """Diagnoses a candidate in CUDA C++ by emulation on the CPU: memory accesses and sanitizer findings.

    Args:
        target: a problem and its candidate, a `.cu` file.
    Raises:
        UsageError: not two targets. CompileError: it does not compile.
    """
    from kernelwright.hwcheck.emulation import TIME_LIMIT_S, diagnose_emulated

    if len(target) != 2:
        raise UsageError(
            "emulation needs a problem and its candidate in CUDA C++",
            next="name both: kw why PROBLEM kernel.cu --device emulated",
        )
    problem, candidate = target
    found = diagnose_emulated(problem, candidate, TIME_LIMIT_S if timeout_s is None else timeout_s)
    verify = format_command("verify", problem, candidate, device="emulated")
    status = "finding" if found.sanitizer_findings else "ok"
    return CommandResult(found, status, (verify, *(one.action for one in found.recommendations)))


def _reject_script_options(spec: str | None, compiled: bool) -> None:
    if names := " and ".join([*["--spec"] * bool(spec), *["--compile"] * compiled]):
        message = f"{names} cannot be used with a script: it is profiled as it runs here"
        raise UsageError(message, next=f"leave {names} out, or name a problem file instead of a script")


def _next_steps(target: Sequence[str], device: str, predicted: bool, found: Diagnosis) -> list[str]:
    """Every recommendation as text, and as a command where one applies it."""
    steps = []
    for one in found.recommendations:
        if one.kind == "fuse" and len(target) == 1 and not predicted:
            steps.append(format_command("optimize", *target, device=device))
        if one.command and not predicted:
            is_script = re.fullmatch(r"python[\d.]*", Path(target[0]).name)
            again = shlex.join(target) if is_script else rerun_command(format_command("why", *target, device=device))
            steps.append(one.command.replace("python ...", again))
        steps.append(one.action)
    return steps
