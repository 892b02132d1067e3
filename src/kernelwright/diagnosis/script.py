"""`kw why -- python train.py ...`: runs a person's script in this process and watches every operator of it."""

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
    """Whether the words are a Python command rather than a problem."""
    return bool(argv) and re.fullmatch(r"python[\d.]*", Path(argv[0]).name) is not None


def watch_script(argv: Sequence[str], device: str, limit_s: float | None = None) -> Diagnosis:
    """Runs `python [-m MODULE | SCRIPT] ARGS...` under this interpreter and reads what it did.

    At the end it runs the exit handlers, as Python would: this process must have nothing else to do, and may leave
    without running them.

    Args:
        limit_s: longest time of the script; None for as long as it takes.
    Raises:
        UsageError: no script in the command.
        NotFoundError: the script is not there.
        ProblemError: the script raised, ended with an exit status, or ran no operator of torch.
    """
    rest = [word for word in argv[1:] if word != "-u"]
    if not rest or (rest[0].startswith("-") and rest[0] != "-m") or rest == ["-m"]:
        raise UsageError(f"no script in {' '.join(argv)!r}", next="name a script: kw why -- python train.py")
    as_module = rest[0] == "-m"
    target, arguments = (rest[1], rest[2:]) if as_module else (rest[0], rest[1:])
    if not as_module and not Path(target).is_file():
        raise NotFoundError(f"no script {target!r}", next="name a Python file after: kw why -- python")
    name = " ".join([Path(target).name, *arguments])
    try:
        with watch(name, device) as seen:
            report_stage(f"watching {name}", limit_s)
            _run_target(target, arguments, as_module)
    finally:
        atexit._run_exitfuncs()
    if seen.diagnosis is None or not seen.diagnosis.operators:
        raise ProblemError(f"{name} ran no operator of torch", next="watch a script that computes something")
    return seen.diagnosis


def _run_target(target: str, arguments: list[str], as_module: bool) -> None:
    sys.argv = [target, *arguments]
    sys.path.insert(0, str(Path.cwd()) if as_module else str(Path(target).resolve().parent))
    try:
        if as_module:
            runpy.run_module(target, run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(target, run_name="__main__")
    except SystemExit as leave:
        if leave.code not in (None, 0):
            raise ProblemError(f"the script ended with exit status {leave.code!r}", where=target) from leave
    except Exception as fault:
        raise ProblemError(
            to_task_error(fault).message, where=find_location(fault), next="run it without kw first"
        ) from fault
