"""Attributes the work of a call to the candidate's own code or to a library.

Sampled from another process: during calls among the timed ones, the candidate's process is stopped at random times,
and each running thread is attributed to the file that contains its current instruction. Code that the candidate
compiled is its own, unless an installed library contains the same code; torch, NumPy and every other installed
library count as libraries; the interpreter and the C library are neutral. JIT code is attributed to its caller. All
code that runs in one sample has an equal part of it, however many threads it has, and so has code that the calling
thread waits for.

Threads of the candidate's own code do not count while one thread is in the interpreter, before or after the work, or
while the calling thread has not yet received the call: on a busy machine that may be most of a call. Work in another
process is not the candidate's own, whether that process computes or waits for a processor while the calling thread
waits for its output; while the calling thread waits, the candidate's other threads do not count either.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import random
import re
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from kernelwright.measure.clock import wall_s
from kernelwright.problems.problem import Args
from kernelwright.sandbox import process_memory
from kernelwright.verification.attacks.library_match import find_library
from kernelwright.verification.transport.client import CandidateClient

MIN_OWN_SHARE = 0.8
WARMUP_CALLS, MAX_CALLS = 3, 1500
SAMPLING_TIMEOUT_S, BUSY_SAMPLING_TIMEOUT_S = 5.0, 20.0
"""The second applies where a busy machine yields too few samples within the first."""
MIN_CONCLUSIVE_SAMPLES, MIN_SAMPLES, MAX_SAMPLES = 40, 8, 400
"""Counts of samples in which code that can be attributed was running."""
STANDARD_ERRORS = 3.0
"""A share is conclusive at this distance from `MIN_OWN_SHARE`."""
SAMPLE_INTERVAL_US = 1000.0
STACK_WORDS = 256
CODE_BYTES_BEFORE, CODE_BYTES = 16, 48
"""Bytes of code around an instruction: long enough to match only where one program contains the other's code."""
ANOTHER_PROCESS = "another process"
JIT_MAPPINGS = ("/memfd:", "//anon", "[anon", "/dev/zero")
JIT_PACKAGES = ("numba", "llvmlite", "triton")
"""Packages that call JIT code which a candidate wrote."""
NEUTRAL_LIBRARIES = (
    "libc.", "libc-", "libm.", "libm-", "ld-linux", "libgomp", "libomp", "libiomp", "libstdc++", "libgcc", "libpthread",
    "libpython", "python", "[vdso]", "[vsyscall]", "libdl", "_ctypes", "libffi", "_struct", "_random", "mmap.",
)  # fmt: skip
INTERPRETER_PATTERN = re.compile(r"/(lib)?python[^/]*$")


@dataclass
class CodeAttribution:
    """Counts samples of calls by the owner of the code that ran.

    Args:
        client: client of the candidate.
        own_folders: code in files of these folders is the candidate's own.
        draw_inputs: returns fresh inputs for a call number.
    """

    client: CandidateClient
    own_folders: tuple[str, ...]
    draw_inputs: Callable[[int], Args]
    _calls: int = 0
    _start_s: float = 0.0
    _call_us: float = math.inf
    _samples: dict[str, float] = field(default_factory=lambda: {"own": 0.0, "library": 0.0})
    _library_samples: Counter[str] = field(default_factory=Counter)
    _code_samples: Counter[bytes] = field(default_factory=Counter)
    _code_mappings: dict[int, list[tuple[int, int, str]]] = field(default_factory=dict)

    def sample(self) -> None:
        """Make one more call and sample it."""
        inputs, self._calls = self.draw_inputs(self._calls), self._calls + 1
        if self._calls <= WARMUP_CALLS:
            self._call_us = min(self._call_us, self.client.call(inputs, read_outputs=False).timed_call.claimed_us)
            self._start_s = wall_s()
            return
        self.client.call(
            inputs, read_outputs=False, poll_hook=_SamplingHook(self._take_sample, max(self._call_us, 1.0))
        )

    @property
    def is_complete(self) -> bool:
        """Whether there are enough samples, or the timeout has expired."""
        if self._calls <= WARMUP_CALLS:
            return False
        timeout_s = SAMPLING_TIMEOUT_S if self._attributed_samples >= MIN_SAMPLES else BUSY_SAMPLING_TIMEOUT_S
        return self._is_conclusive or self._calls >= MAX_CALLS or wall_s() - self._start_s > timeout_s

    @functools.cached_property
    def own_share(self) -> float | None:
        """The candidate's share of the time in attributed code; None where there are too few samples. Read after the
        last sample."""
        if self._attributed_samples < MIN_SAMPLES:
            return None
        share = self._samples["own"] / self._attributed_samples
        if share >= MIN_OWN_SHARE and (library := find_library(list(self._code_samples))):
            self._library_samples = Counter({f"a copy of {library}": 1})
            return 0.0
        return share

    @property
    def _is_conclusive(self) -> bool:
        """Whether more samples are unlikely to change on which side of `MIN_OWN_SHARE` the share is."""
        if (total := self._attributed_samples) < MIN_CONCLUSIVE_SAMPLES:
            return False
        share = self._samples["own"] / total
        return total >= MAX_SAMPLES or abs(share - MIN_OWN_SHARE) > STANDARD_ERRORS * math.sqrt(
            share * (1 - share) / total
        )

    @property
    def _attributed_samples(self) -> float:
        return self._samples["own"] + self._samples["library"]

    @property
    def library_names(self) -> str:
        """File names of the two libraries with the most samples."""
        return ", ".join(name for name, _ in self._library_samples.most_common(2))

    def _take_sample(self) -> bool:
        """Take a sample of the stopped process; whether any code was attributed."""
        self.client.child.stop()
        try:
            if self.client.timer.is_done():
                return True
            pid, *children = self.client.child.stopped_pids
            attributions = list(self._attribute_threads(pid))
            in_children = [
                one for one in itertools.chain(*map(self._attribute_threads, children)) if one[0] != "neutral"
            ]
            is_waiting = bool(children) and pid not in process_memory.find_running_threads(pid)
            waits_for_process = is_waiting and process_memory.waits_for_process_or_file(pid)
            own_code_counts = (
                not is_waiting
                and not process_memory.waits_for_message(pid)
                and not any(map(_is_interpreter, attributions))
            )
        finally:
            self.client.child.resume()
        attributions += [("library", ANOTHER_PROCESS, b"")] * (len(in_children) or waits_for_process)
        owners = {owner for owner, _, _ in attributions} - ({"neutral"} if own_code_counts else {"neutral", "own"})
        for owner in owners:
            self._samples[owner] += 1 / len(owners)
        self._library_samples.update({Path(path).name for owner, path, _ in attributions if owner == "library"})
        self._code_samples.update({code for owner, _, code in attributions if owner == "own" and code})
        return bool(owners)

    def _attribute_threads(self, pid: int) -> Iterator[tuple[str, str, bytes]]:
        """Owner, file and code bytes of each running thread of a process, and of the code that its first thread waits
        for.

        Unreadable threads are neutral, so that one of them does not hide the others.
        """
        for at, stack in process_memory.find_running_threads(pid).values():
            path = self._find_file(pid, at, stack)
            yield self._classify_file(path), path, _read_or_empty(pid, at - CODE_BYTES_BEFORE, CODE_BYTES)
        if (stack := process_memory.find_futex_stack(pid)) and (path := self._find_caller(pid, stack)):
            yield self._classify_file(path), path, b""

    def _find_file(self, pid: int, instruction: int, stack: int) -> str:
        """The file of an instruction; for JIT code, the file of its nearest caller."""
        if (path := self._file_at(pid, instruction)) is None:
            with contextlib.suppress(OSError):
                self._code_mappings[pid] = process_memory.list_code_mappings(
                    pid
                )  # a library may have been loaded since
            path = self._file_at(pid, instruction)
        return path or self._find_caller(pid, stack) or ""

    def _find_caller(self, pid: int, stack: int) -> str | None:
        """The file of the nearest return address on a stack that is not neutral."""
        words = struct.iter_unpack("=Q", _read_or_empty(pid, stack & ~7, 8 * STACK_WORDS))
        callers = filter(None, (self._file_at(pid, word) for (word,) in words))
        return next((caller for caller in callers if self._classify_file(caller) != "neutral"), None)

    def _file_at(self, pid: int, address: int) -> str | None:
        """The mapped file at an address: empty for JIT code, None where no code is mapped."""
        for start, end, path in self._code_mappings.get(pid, ()):
            if start <= address < end:
                return "" if path.startswith(JIT_MAPPINGS) else path
        return None

    def _classify_file(self, path: str) -> str:
        if not path or path.startswith(self.own_folders) or any(f"/{name}/" in path for name in JIT_PACKAGES):
            return "own"
        return "neutral" if Path(path).name.startswith(NEUTRAL_LIBRARIES) else "library"


def _is_interpreter(attribution: tuple[str, str, bytes]) -> bool:
    return bool(INTERPRETER_PATTERN.search(attribution[1]))


def _read_or_empty(pid: int, address: int, size: int) -> bytes:
    """Read memory of a stopped process; empty where none is mapped."""
    try:
        return bytes(process_memory.read(pid, address, size))
    except OSError:
        return b""


@dataclass
class _SamplingHook:
    """Samples a call at a random time within its duration and periodically after that; sooner again where no code was
    attributed."""

    take_sample: Callable[[], bool]
    call_us: float
    _next_us: float = field(init=False)

    def __post_init__(self) -> None:
        self._next_us = self._random_time_us()

    def __call__(self, running_us: float) -> None:
        if running_us >= self._next_us:
            self._next_us = running_us + (
                SAMPLE_INTERVAL_US if self.take_sample() else min(self._random_time_us(), SAMPLE_INTERVAL_US)
            )

    def _random_time_us(self) -> float:
        return self.call_us * random.SystemRandom().random()
