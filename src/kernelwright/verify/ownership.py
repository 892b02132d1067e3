"""Whose code does the work: a candidate's own, or a library's.

Seen from outside: the process is stopped at moments drawn by chance, and for every thread that was computing it is
asked from which file its instruction came. What a candidate compiled is its own; torch, NumPy and every other installed
library is not; the interpreter and the C library serve both, and count for neither. Code that was made at run time
belongs to whoever called it.

On a device, kernels are torch's that an operator of torch's launched, and others' that have the names that libraries
give theirs.
"""

from __future__ import annotations

import math
import random
import re
import struct
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from kernelwright.measure.clock import wall_s
from kernelwright.measure.trace import DeviceKernel
from kernelwright.problems.problem import Args
from kernelwright.sandbox import inspection
from kernelwright.verify.calls import Line

LEAST_OWN = 0.8
WARM_CALLS, MOST_CALLS = 3, 1500
BUDGET_S, PATIENT_S = 5.0, 20.0
"""The second where a busy machine lets too little be seen in the first."""
ENOUGH, TOO_FEW, PLENTY = 40, 8, 400
"""Moments at which something that is somebody's was computing."""
SPREAD = 3.0
"""So many standard errors from `LEAST_OWN` a share is clear."""
PEEK_EVERY_US = 1000.0
STACK_WORDS = 256
MADE_AT_RUN_TIME = ("/memfd:", "//anon", "[anon", "/dev/zero")
COMPILERS = ("numba", "llvmlite", "triton")
"""What calls code that a candidate wrote and had compiled at run time."""
NEUTRAL = (
    "libc.", "libc-", "libm.", "libm-", "ld-linux", "libgomp", "libomp", "libiomp", "libstdc++", "libgcc", "libpthread",
    "libpython", "python", "[vdso]", "[vsyscall]", "libdl", "_ctypes", "libffi", "_struct", "_random", "mmap.",
)  # fmt: skip
LIBRARY_KERNELS = re.compile(
    r"\bat::|at_cuda_detail|\bcub::|\bthrust::|cublas|cudnn|cufft|cusparse|cusolver|^nccl|^nvjet|_xmma_|\bcutlass_\d\d_"
    r"|\bgemv2[NT]_kernel|\bgemvNSP_kernel|\bgemmSN_|\bgemmk1_kernel|\breduce_1Block_kernel|splitKreduce|\bmagma_"
    r"|\bpytorch_flash::|\bfmha_cutlass|^(ampere|volta|turing)_[sdchb]+gemm"
)
"""As narrow as they are known: a kernel called `gemm` is anybody's."""
NEITHERS_KERNELS = re.compile(r"^Mem(cpy|set) ")
"""Copies and fills are anybody's."""


@dataclass
class Ownership:
    """Counts moments of calls by whose code ran.

    Args:
        line: the candidate's.
        folders: what is compiled there is the candidate's own.
    """

    line: Line
    folders: tuple[str, ...]
    _seen: Counter[str] = field(default_factory=Counter)
    _code: list[tuple[int, int, str]] = field(default_factory=list)

    def measure(self, draw: Callable[[int], Args]) -> float | None:
        """The share of the time of calls that the candidate's own code ran; None where too little can be seen.

        Args:
            draw: gives fresh inputs by number.
        """
        times_us = sorted(self.line.call(draw(at), look=False).window.claimed_us for at in range(WARM_CALLS))
        start_s = wall_s()
        lasts_us, chance = max(times_us[0], 1.0), random.SystemRandom()
        self._code = inspection.code_of(self.line.child.pid)
        for at in range(WARM_CALLS, MOST_CALLS):
            self.line.call(draw(at), look=False, peek=_Peek(self._moment, lasts_us * chance.random()))
            if self._is_clear or wall_s() - start_s > (BUDGET_S if self._whose_total >= TOO_FEW else PATIENT_S):
                break
        return self._seen["own"] / self._whose_total if self._whose_total >= TOO_FEW else None

    @property
    def _is_clear(self) -> bool:
        """Whether so many moments have been seen that others would hardly say otherwise."""
        if (total := self._whose_total) < ENOUGH:
            return False
        share = self._seen["own"] / total
        return total >= PLENTY or abs(share - LEAST_OWN) > SPREAD * math.sqrt(share * (1 - share) / total)

    @property
    def _whose_total(self) -> int:
        return self._seen["own"] + self._seen["library"]

    @property
    def libraries(self) -> str:
        """The files that did most of the rest, by name."""
        names = [(count, name) for name, count in self._seen.items() if name.startswith("lib/")]
        return ", ".join(name.removeprefix("lib/") for _, name in sorted(names, reverse=True)[:2])

    def _moment(self) -> None:
        self.line.child.stop()
        try:
            if self.line.watch.is_done():
                return
            pid = self.line.child.pid
            found = [self._path(instruction, stack) for instruction, stack in inspection.computing_at(pid)]
        except OSError:  # it is gone: the call itself will tell
            return
        finally:
            self.line.child.resume()
        for path in found:
            whose = self._whose(path)
            self._seen[whose] += 1
            if whose == "library":
                self._seen[f"lib/{Path(path).name}"] += 1

    def _path(self, instruction: int, stack: int) -> str:
        """The file that an instruction comes from, or, for one that comes from none, the nearest that called it."""
        if (path := self._file_of(instruction)) is None:
            self._code = inspection.code_of(self.line.child.pid)  # something was loaded since
            path = self._file_of(instruction)
        if path:
            return path
        words = struct.unpack(f"={STACK_WORDS}Q", inspection.read(self.line.child.pid, stack & ~7, 8 * STACK_WORDS))
        callers = filter(None, map(self._file_of, words))
        return next((caller for caller in callers if self._whose(caller) != "neutral"), "")

    def _file_of(self, address: int) -> str | None:
        """Empty for code that was made at run time, None for what is no code."""
        for start, end, path in self._code:
            if start <= address < end:
                return "" if path.startswith(MADE_AT_RUN_TIME) else path
        return None

    def _whose(self, path: str) -> str:
        if not path or path.startswith(self.folders) or any(f"/{name}/" in path for name in COMPILERS):
            return "own"
        return "neutral" if Path(path).name.startswith(NEUTRAL) else "library"


@dataclass
class DeviceOwnership:
    """Counts the time of kernels by whose they are. Arguments and results as `Ownership` has them."""

    line: Line
    _kernels: list[DeviceKernel] = field(default_factory=list)

    def measure(self, draw: Callable[[int], Args]) -> float | None:
        self._kernels = self.line.call(draw(0), look=False, trace=True).kernels
        someones = [one.time_us for one in self._kernels if not NEITHERS_KERNELS.search(one.name)]
        return 1 - sum(one.time_us for one in self._foreign) / sum(someones) if someones else None

    @property
    def libraries(self) -> str:
        """The longest two kernels of libraries."""
        return ", ".join(list(dict.fromkeys(one.name for one in self._foreign))[:2])

    @property
    def _foreign(self) -> list[DeviceKernel]:
        found = [one for one in self._kernels if _is_foreign(one)]
        return sorted(found, key=lambda one: one.time_us, reverse=True)


def _is_foreign(kernel: DeviceKernel) -> bool:
    if NEITHERS_KERNELS.search(kernel.name):
        return False
    return kernel.operator.startswith("aten::") or bool(LIBRARY_KERNELS.search(kernel.name))


@dataclass
class _Peek:
    """Looks once a call has run for so long, and again and again while it goes on."""

    look: Callable[[], None]
    at_us: float

    def __call__(self, running_us: float) -> None:
        if running_us >= self.at_us:
            self.look()
            self.at_us = running_us + PEEK_EVERY_US
