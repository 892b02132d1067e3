"""Runs a kernel under a sanitizer, in a process of its own: overruns of tensors and of shared memory, and races.

Under `address` every tensor lies in an allocation of its exact size. Under `thread` each CUDA thread is a fiber that
ThreadSanitizer takes for a thread; only `__syncthreads`, `__syncwarp` and the end of a block order anything, so what is
reported does not depend on who ran first. Races between two blocks are not seen. The tensors given are not changed.
"""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from kernelwright.core.errors import CrashError, SetupError, TimeLimitError
from kernelwright.toolchain.emulator.access_counter import extent
from kernelwright.toolchain.emulator.arguments import Argument, Dim3, LaunchShape
from kernelwright.toolchain.emulator.build import build_process
from kernelwright.toolchain.emulator.launcher import EmulatedKernel
from kernelwright.toolchain.emulator.sanitizer_report import Finding, read_findings

if TYPE_CHECKING:
    import torch

Sanitizer = Literal["address", "thread"]
TIME_LIMIT_S = 300
_OPTIONS = {
    "ASAN_OPTIONS": "detect_leaks=0:redzone=1024:max_redzone=2048:abort_on_error=0:color=never:handle_segv=1",
    "TSAN_OPTIONS": "halt_on_error=0:exitcode=0:color=never:report_signal_unsafe=0:history_size=7:atexit_sleep_ms=0",
}
_VALUE, _TENSOR, _ALIAS = range(3)
_MAPPING_ERROR = "unexpected memory mapping"


def sanitize(
    source: str,
    name: str,
    grid: Dim3,
    block: Dim3,
    arguments: Sequence[Any],
    shared_bytes: int = 0,
    *,
    sanitizer: Sanitizer,
    path: str = "kernel.cu",
    limit_s: float = TIME_LIMIT_S,
) -> tuple[Finding, ...]:
    """What a sanitizer finds in one launch; empty when nothing. AddressSanitizer ends at its first finding.

    Args and errors: as for `EmulatedKernel` and its call; threads that wait for each other are a finding here.
    Raises:
        SetupError: on macOS, or the sanitizer does not start on this machine.
        TimeLimitError: it ran longer than `limit_s`.
        CrashError: it ended without a report.
    """
    kernel = EmulatedKernel(source, name, path=path)
    bound, shape = kernel.bind(arguments), LaunchShape.from_sizes(grid, block, shared_bytes)
    program = build_process(kernel.source, name, sanitizer)
    number = kernel.source.exported_kernels(name).index(name)
    with tempfile.TemporaryDirectory(prefix="kernelwright-") as folder:
        executable, launch = Path(folder) / "kernel", Path(folder) / "launch"
        shutil.copyfile(program, executable)
        executable.chmod(0o700)
        launch.write_bytes(_encode_launch(number, shape, bound))
        report = _run([str(executable), str(launch)], limit_s)
    return read_findings(report, path, bound)


def _encode_launch(number: int, shape: LaunchShape, bound: Sequence[Argument]) -> bytes:
    """The file that process.cpp reads: numbers of 8 bytes, and the arguments' bytes."""
    head = struct.pack("9Q", number, *shape.grid, *shape.block, shape.shared_bytes, len(bound))
    first: dict[int, int] = {}
    return head + b"".join(_encode_argument(one, i, first) for i, one in enumerate(bound))


def _encode_argument(one: Argument, i: int, first: dict[int, int]) -> bytes:
    if one.tensor is None:
        return struct.pack("2Q", _VALUE, len(one.value)) + one.value
    earlier = first.setdefault(one.tensor.data_ptr(), i) if one.tensor.numel() else i
    if earlier != i:
        return struct.pack("2Q", _ALIAS, earlier)
    data = _tensor_bytes(one.tensor)
    return struct.pack("2Q", _TENSOR, len(data)) + data


def _tensor_bytes(tensor: torch.Tensor) -> bytes:
    """The bytes from a tensor's first element to its last."""
    return ctypes.string_at(tensor.data_ptr(), extent(tensor) * tensor.itemsize) if tensor.numel() else b""


def _run(command: list[str], limit_s: float) -> str:
    """The report. ThreadSanitizer cannot map its memory under some kernels' address randomisation: then without it."""
    report = _run_once(command, limit_s)
    if _MAPPING_ERROR in report and (setarch := shutil.which("setarch")):
        report = _run_once([setarch, platform.machine(), "-R", *command], limit_s)
    if _MAPPING_ERROR in report:
        raise SetupError("ThreadSanitizer cannot map its memory on this machine", next="sysctl vm.mmap_rnd_bits=28")
    return report


def _run_once(command: list[str], limit_s: float) -> str:
    environment = {**os.environ, **_OPTIONS, "OMP_NUM_THREADS": "1"}
    environment.pop("LD_PRELOAD", None)
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, errors="replace", timeout=limit_s, check=False
        )
    except subprocess.TimeoutExpired:
        raise TimeLimitError(f"the kernel did not end within {limit_s} s under the sanitizer") from None
    if "kw-done" not in done.stderr and "Sanitizer" not in done.stderr:
        raise CrashError(
            f"the kernel's process ended with status {done.returncode} and no report: {done.stderr[-500:]}"
        )
    return done.stderr
