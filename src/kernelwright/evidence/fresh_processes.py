"""Commands run as a user would run them first: one at a time on each GPU, each with an empty home folder.

Nothing compiled or tuned in an earlier command is found in the caches; the ceilings of the machine are known, as on
every machine on which `kw` has run once.
"""

from __future__ import annotations

import os
import re
import shutil
import site
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec
import torch

from kernelwright.core.cache import cache_dir
from kernelwright.core.document import decode
from kernelwright.core.errors import CrashError, KernelwrightError, error_types_by_code
from kernelwright.core.machine import Machine
from kernelwright.evidence.command_process import CommandProcess
from kernelwright.machines import require_device
from kernelwright.measure.clock import wall_s

KW = (sys.executable, "-m", "kernelwright")
MACHINE_LIMIT_S = 120.0
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
Job = TypeVar("Job")


class DeviceShare(NamedTuple):
    """A GPU with its share of the cores, or the CPU with all cores: where one command runs at a time."""

    environment: dict[str, str]
    cores: set[int]


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


def run_jobs(
    jobs: Iterable[Job],
    make_command: Callable[[Job, Path], tuple[str, ...]],
    shares: list[DeviceShare],
    end_s: float,
    *,
    min_left_s: float,
    limit_s: float,
) -> Iterator[tuple[Job, CommandProcess]]:
    """Run the command of each job, and yield each as soon as it has ended; its output is gone with the next step.

    Commands that are running at `end_s`, a time of `wall_s`, are killed and not returned.

    Args:
        make_command: the command of a job, and an empty folder for what it writes.
        min_left_s: none starts with less time left than this.
        limit_s: seconds after which a command is killed and returned as it is.
    """
    todo, running = list(jobs), dict[int, tuple[Job, CommandProcess]]()
    with tempfile.TemporaryDirectory(prefix="kernelwright-", ignore_cleanup_errors=True) as root:
        try:
            while running or todo:
                left_s = end_s - wall_s()
                for number, share in enumerate(shares):
                    if number not in running and todo and left_s >= min_left_s:
                        job, folder = todo.pop(0), Path(root, str(number))
                        environment = _fresh_environment(folder) | share.environment
                        command = make_command(job, folder)
                        running[number] = job, CommandProcess(command, environment, share.cores, limit_s, folder)
                if left_s <= 0 or not running:
                    return
                for number, (job, process) in list(running.items()):
                    if process.wait():
                        del running[number]
                        yield job, process
        finally:
            for _, process in running.values():
                process.kill()


def failure_of(process: CommandProcess, limit_s: float) -> tuple[str, str]:
    """Code and first line of the reason why a command has no result."""
    if process.timed_out:
        return "timeout", f"no result within {limit_s:g} s"
    if error := _reported_error(process.output):
        return error.code, first_line(error.message)
    return "crash", first_line(_exit_text(process))


def first_line(text: str) -> str:
    """The first line, shortened, without folders: later ones may quote the problem, which is not recorded."""
    line = _FOLDERS.sub("", text.strip().partition("\n")[0])
    return line if len(line) <= MAX_DETAIL else f"{line[:MAX_DETAIL]}..."


def _fresh_environment(folder: Path) -> dict[str, str]:
    """The environment of this process with an empty home and scratch folder, where all caches are by default."""
    shutil.rmtree(folder, ignore_errors=True)  # of the command before
    home, scratch = folder / "home", folder / "tmp"
    shutil.copytree(cache_dir("machine"), home / ".cache" / "kernelwright" / "machine")
    scratch.mkdir()
    kept = {name: value for name, value in os.environ.items() if name not in _CACHE_VARIABLES}
    return kept | {"HOME": str(home), "TMPDIR": str(scratch), "PYTHONUSERBASE": site.getuserbase()}


def _reported_error(output: bytes) -> _Error | None:
    try:
        return msgspec.json.decode(output, type=_ErrorDocument).error
    except msgspec.DecodeError:
        return None


def _exit_text(process: CommandProcess) -> str:
    how = "killed" if process.timed_out else f"exit status {process.exit_code}"
    return f"{how}: {process.last_error_line}" if process.last_error_line else how
