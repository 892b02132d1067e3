"""Kernels under AddressSanitizer or ThreadSanitizer in a separate process: out-of-bounds accesses and data races.

Under `address` every tensor has its own allocation of its exact size. Under `thread` each CUDA thread is a fiber that
ThreadSanitizer treats as a thread; only `__syncthreads`, `__syncwarp`, mbarriers and the end of a block synchronize, so
reports do not depend on the order of execution. Races between blocks are not detected. The caller's tensors are not
modified.
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
    """Run one launch under a sanitizer and return its findings; AddressSanitizer stops at the first.

    Arguments and errors as for `EmulatedKernel` and its call, except that a deadlock is a finding here.

    Raises:
        SetupError: on macOS, or the sanitizer does not start on this machine.
        TimeLimitError: it ran longer than `limit_s`.
        CrashError: the process exited without a report.
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
    """Encode the launch file of process.cpp: 8-byte numbers, and the bytes of the arguments."""
    header = struct.pack("9Q", number, *shape.grid, *shape.block, shape.shared_bytes, len(bound))
    index_of: dict[int, int] = {}
    return header + b"".join(_encode_argument(argument, i, index_of) for i, argument in enumerate(bound))


def _encode_argument(argument: Argument, i: int, index_of: dict[int, int]) -> bytes:
    if argument.tensor is None:
        return struct.pack("2Q", _VALUE, len(argument.value)) + argument.value
    first = index_of.setdefault(argument.tensor.data_ptr(), i) if argument.tensor.numel() else i
    if first != i:
        return struct.pack("2Q", _ALIAS, first)
    data = _tensor_bytes(argument.tensor)
    return struct.pack("2Q", _TENSOR, len(data)) + data


def _tensor_bytes(tensor: torch.Tensor) -> bytes:
    """The bytes from a tensor's first element to its last."""
    return ctypes.string_at(tensor.data_ptr(), extent(tensor) * tensor.itemsize) if tensor.numel() else b""


def _run(command: list[str], limit_s: float) -> str:
    """Run the program and return its stderr; without ASLR if ThreadSanitizer cannot map its memory otherwise."""
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
        result = subprocess.run(
            command, env=environment, capture_output=True, text=True, errors="replace", timeout=limit_s, check=False
        )
    except subprocess.TimeoutExpired:
        raise TimeLimitError(f"the kernel did not finish within {limit_s} s under the sanitizer") from None
    if "kw-done" not in result.stderr and "Sanitizer" not in result.stderr:
        raise CrashError(
            f"the sanitizer process exited with status {result.returncode} and no report: {result.stderr[-500:]}"
        )
    return result.stderr
