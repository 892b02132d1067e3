"""Runs `kw optimize FILE` on many files as a user would: one process per GPU, each with an empty home folder.

Nothing compiled or tuned for another problem, or in an earlier run, is found in the caches; the ceilings of the machine
are known, as on every machine on which `kw` has run once.
"""

from __future__ import annotations

import os
import re
import shutil
import site
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec
import torch

from kernelwright.core.cache import cache_dir
from kernelwright.core.document import decode
from kernelwright.core.errors import CrashError, KernelwrightError, error_types_by_code
from kernelwright.core.kernelbench import OURS, MedianTime, ProblemRun
from kernelwright.core.machine import Machine
from kernelwright.core.optimization import DEFAULT_BUDGET_S, Optimization
from kernelwright.evidence.command_process import CommandProcess
from kernelwright.machines import require_device
from kernelwright.measure.clock import wall_s

KW = (sys.executable, "-m", "kernelwright")
PROBLEM_LIMIT_S = 180.0
"""Seconds after which `kw optimize` is killed: three times its budget, and beyond the longest time that is a target."""
MACHINE_LIMIT_S = 120.0
CANDIDATE = "candidate"
"""Name of the written file in its benchmark."""
MAX_DETAIL = 200
_FOLDERS = re.compile(r"(?<![\w./])/(?:[^/\s]+/)+")
"""Of an absolute path."""
_CACHE_VARIABLES = (
    "KERNELWRIGHT_CACHE",
    "TRITON_CACHE_DIR",
    "TRITON_HOME",
    "TORCHINDUCTOR_CACHE_DIR",
    "CUDA_CACHE_PATH",
    "XDG_CACHE_HOME",
)


class DeviceShare(NamedTuple):
    """A GPU with its share of the cores, or the CPU with all cores: where one problem runs at a time."""

    environment: dict[str, str]
    cores: set[int]


class FinishedProblem(NamedTuple):
    """The result of a problem, and the text of the file that was written; empty without one."""

    run: ProblemRun
    source: str


class _Error(msgspec.Struct):
    code: str
    message: str


class _ErrorDocument(msgspec.Struct):
    """A document of `kw --json`; `error` is set if the verb failed."""

    error: _Error | None = None


def device_shares(device: str) -> list[DeviceShare]:
    """Every visible GPU with its part of the cores that this process may use; the CPU as a whole.

    Raises:
        DeviceError: the device is not available.
    """
    require_device(device)
    cores = sorted(os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1))
    if device == "cpu":
        return [DeviceShare({}, set(cores))]
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    gpus = visible.split(",") if visible else [str(number) for number in range(torch.cuda.device_count())]
    count = max(len(cores) // len(gpus), 1)
    parts = [cores[number * count : (number + 1) * count] or cores for number in range(len(gpus))]
    return [DeviceShare({"CUDA_VISIBLE_DEVICES": gpu}, set(part)) for gpu, part in zip(gpus, parts, strict=True)]


def measure_machine(device: str, share: DeviceShare) -> Machine:
    """The machine as `kw machine` measures it: in a process of its own, so that this one holds no memory of a GPU.

    Raises:
        KernelwrightError: as that process reported it. CrashError: it returned nothing.
    """
    with tempfile.TemporaryDirectory() as folder:
        command = (*KW, "machine", "--device", device, "--json")
        process = CommandProcess(command, os.environ | share.environment, share.cores, MACHINE_LIMIT_S, Path(folder))
        while not process.wait():
            pass
        if error := _reported_error(process.output):
            raise error_types_by_code().get(error.code, KernelwrightError)(error.message)
        if process.exit_code:
            raise CrashError(f"kw machine: {_exit_text(process)}", next=f"kw machine --device {device}")
        return decode(process.output, Machine)


def run_problems(
    files: Mapping[str, Path], device: str, shares: list[DeviceShare], end_s: float
) -> Iterator[FinishedProblem]:
    """Optimise each file, and yield each result as soon as it is known.

    Problems that are running at `end_s`, a time of `wall_s`, are killed and have no result; none starts with less time
    left than its budget.
    """
    todo, running = list(files.items()), dict[int, tuple[str, CommandProcess]]()
    with tempfile.TemporaryDirectory(prefix="kernelbench-", ignore_cleanup_errors=True) as root:
        try:
            while running or todo:
                left_s = end_s - wall_s()
                for number, share in enumerate(shares):
                    if number not in running and todo and left_s >= DEFAULT_BUDGET_S[device]:
                        name, path = todo.pop(0)
                        running[number] = name, _start(path, device, share, Path(root, str(number)))
                if left_s <= 0 or not running:
                    return
                for number, (name, process) in list(running.items()):
                    if process.wait():
                        del running[number]
                        yield _finish(name, process)
        finally:
            for _, process in running.values():
                process.kill()


def _start(path: Path, device: str, share: DeviceShare, folder: Path) -> CommandProcess:
    shutil.rmtree(folder, ignore_errors=True)  # of the problem before
    environment = _fresh_environment(folder) | share.environment
    budget_s = DEFAULT_BUDGET_S[device]
    command = (*KW, "optimize", str(path.resolve()), "--out", str(folder / "optimized.py"))
    command += ("--device", device, "--budget", f"{budget_s:g}", "--json")
    return CommandProcess(command, environment, share.cores, PROBLEM_LIMIT_S, folder)


def _fresh_environment(folder: Path) -> dict[str, str]:
    """The environment of this process with an empty home and scratch folder, where all caches are by default."""
    home, scratch = folder / "home", folder / "tmp"
    shutil.copytree(cache_dir("machine"), home / ".cache" / "kernelwright" / "machine")
    scratch.mkdir()
    kept = {name: value for name, value in os.environ.items() if name not in _CACHE_VARIABLES}
    return kept | {"HOME": str(home), "TMPDIR": str(scratch), "PYTHONUSERBASE": site.getuserbase()}


def _finish(name: str, process: CommandProcess) -> FinishedProblem:
    found = None
    with suppress(KernelwrightError):
        found = decode(process.output, Optimization)
    spent_s = round(process.wall_s, 2)
    if found is None or process.timed_out:
        code, detail = _failure(process)
        return FinishedProblem(ProblemRun(name=name, wall_s=spent_s, accepted=False, reason=code, detail=detail), "")
    reason = found.verdict.reason if found.verdict else None
    run = ProblemRun(
        name=name,
        wall_s=spent_s,
        accepted=found.verdict is not None and found.verdict.accepted,
        reason=reason.code if reason else "",
        detail=_first_line(reason.detail) if reason else "",
        winner=found.variant,
        num_regions=len(found.regions),
        num_kernels=found.num_kernels,
        times={
            OURS if one.name == CANDIDATE else one.name: MedianTime(
                time_us=one.time_us, low_us=one.low_us, high_us=one.high_us
            )
            for one in (found.bench.variants if found.bench else ())
        },
        left_out=found.budget.left_out if found.budget else (),
    )
    return FinishedProblem(run, found.source)


def _failure(process: CommandProcess) -> tuple[str, str]:
    """Code and first line of the reason why there is no result."""
    if process.timed_out:
        return "timeout", f"no result within {PROBLEM_LIMIT_S:g} s"
    if error := _reported_error(process.output):
        return error.code, _first_line(error.message)
    return "crash", _first_line(_exit_text(process))


def _reported_error(output: bytes) -> _Error | None:
    try:
        return msgspec.json.decode(output, type=_ErrorDocument).error
    except msgspec.DecodeError:
        return None


def _exit_text(process: CommandProcess) -> str:
    how = "killed" if process.timed_out else f"exit status {process.exit_code}"
    return f"{how}: {process.last_error_line}" if process.last_error_line else how


def _first_line(text: str) -> str:
    """The first line, shortened, without folders: later ones may quote the problem, which is not recorded."""
    line = _FOLDERS.sub("", text.strip().partition("\n")[0])
    return line if len(line) <= MAX_DETAIL else f"{line[:MAX_DETAIL]}..."
