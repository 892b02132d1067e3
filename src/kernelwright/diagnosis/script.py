"""`kw why -- python train.py ...`: runs a user script in this process and records every operator."""

from __future__ import annotations

import atexit
import re
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

from kernelwright.core.diagnosis import Diagnosis
from kernelwright.core.errors import NotFoundError, ProblemError, UsageError
from kernelwright.core.progress import report_stage
from kernelwright.diagnosis.watch import watch
from kernelwright.sandbox.exceptions import find_location, to_task_error


def is_python_command(argv: Sequence[str]) -> bool:
    """Whether the arguments are a Python command rather than a problem."""
    return bool(argv) and re.fullmatch(r"python[\d.]*", Path(argv[0]).name) is not None


def watch_script(argv: Sequence[str], device: str, limit_s: float | None = None) -> Diagnosis:
    """Run `python [-m MODULE | SCRIPT] ARGS...` in this interpreter and diagnose it.

    Runs the exit handlers at the end, as Python would: call it last in a process, which may then exit without them.

    Args:
        limit_s: time limit of the script; None for no limit.
    Raises:
        UsageError: no script in the command.
        NotFoundError: the script does not exist.
        ProblemError: the script raised, exited with a non-zero status, or ran no torch operator.
    """
    rest = [argument for argument in argv[1:] if argument != "-u"]
    if not rest or (rest[0].startswith("-") and rest[0] != "-m") or rest == ["-m"]:
        raise UsageError(f"no script in {' '.join(argv)!r}", next="name a script: kw why -- python train.py")
    as_module = rest[0] == "-m"
    target, arguments = (rest[1], rest[2:]) if as_module else (rest[0], rest[1:])
    if not as_module and not Path(target).is_file():
        raise NotFoundError(f"no script {target!r}", next="name a Python file after: kw why -- python")
    name = " ".join([Path(target).name, *arguments])
    try:
        with watch(name, device) as watched:
            report_stage(f"watching {name}", limit_s)
            _run_target(target, arguments, as_module)
    finally:
        atexit._run_exitfuncs()
    if watched.diagnosis is None or not watched.diagnosis.operators:
        raise ProblemError(f"{name} ran no torch operator", next="watch a script that computes something")
    return watched.diagnosis


def _run_target(target: str, arguments: list[str], as_module: bool) -> None:
    sys.argv = [target, *arguments]
    sys.path.insert(0, str(Path.cwd()) if as_module else str(Path(target).resolve().parent))
    try:
        if as_module:
            runpy.run_module(target, run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(target, run_name="__main__")
    except SystemExit as exc:
        if exc.code not in (None, 0):
            raise ProblemError(f"the script ended with exit status {exc.code!r}", where=target) from exc
    except Exception as exc:
        raise ProblemError(
            to_task_error(exc).message, where=find_location(exc), next="run it without kw first"
        ) from exc
