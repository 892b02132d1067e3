"""Whose code does the work: a candidate's own, or a library's.

Seen from outside: the process is stopped at moments drawn by chance, in calls among those that are timed, and for every
thread that was computing it is asked from which file its instruction came. What a candidate compiled is its own, unless
the same code lies in an installed library; torch, NumPy and every other installed library is not; the interpreter and
the C library serve both, and count for neither. Code that was made at run time belongs to whoever called it. All that
compute at one moment share it alike, however many threads each has, with those for whom the called thread waits.

Threads of the candidate's own prove nothing while one is in the interpreter, before the work or after it, or while the
called thread has yet to hear that it is called: on a busy machine that may be most of a call. What another process does
is not the candidate's own work, whether it computes or has yet to be given a processor while the called thread waits
for what it will write; and while that thread waits, the rest proves nothing either.
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
"""The second where a busy machine lets too little be seen in the first."""
MIN_CONCLUSIVE_SAMPLES, MIN_SAMPLES, MAX_SAMPLES = 40, 8, 400
"""Moments at which something that is somebody's was computing."""
STANDARD_ERRORS = 3.0
"""So many standard errors from `MIN_OWN_SHARE` a share is clear."""
SAMPLE_INTERVAL_US = 1000.0
STACK_WORDS = 256
CODE_BYTES_BEFORE, CODE_BYTES = 16, 48
"""Of the code around an instruction: so much is the same in two programs only where one has it from the other."""
ANOTHER_PROCESS = "another process"
JIT_MAPPINGS = ("/memfd:", "//anon", "[anon", "/dev/zero")
JIT_PACKAGES = ("numba", "llvmlite", "triton")
"""What calls code that a candidate wrote and had compiled at run time."""
NEUTRAL_LIBRARIES = (
    "libc.", "libc-", "libm.", "libm-", "ld-linux", "libgomp", "libomp", "libiomp", "libstdc++", "libgcc", "libpthread",
    "libpython", "python", "[vdso]", "[vsyscall]", "libdl", "_ctypes", "libffi", "_struct", "_random", "mmap.",
)  # fmt: skip
INTERPRETER_PATTERN = re.compile(r"/(lib)?python[^/]*$")


@dataclass
class CodeAttribution:
    """Counts moments of calls by whose code ran.

    Args:
        client: the candidate's.
        own_folders: what is compiled there is the candidate's own.
        draw_inputs: gives fresh inputs by number.
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
        """Makes one more call, and looks into it."""
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
        """Whether enough has been seen, or it takes too long."""
        if self._calls <= WARMUP_CALLS:
            return False
        patience_s = SAMPLING_TIMEOUT_S if self._attributed_samples >= MIN_SAMPLES else BUSY_SAMPLING_TIMEOUT_S
        return self._is_conclusive or self._calls >= MAX_CALLS or wall_s() - self._start_s > patience_s

    @functools.cached_property
    def own_share(self) -> float | None:
        """Of the time in which anybody's code ran, the candidate's own; None where too little was seen. Asked last."""
        if self._attributed_samples < MIN_SAMPLES:
            return None
        share = self._samples["own"] / self._attributed_samples
        if share >= MIN_OWN_SHARE and (library := find_library(list(self._code_samples))):
            self._library_samples = Counter({f"a copy of {library}": 1})
            return 0.0
        return share

    @property
    def _is_conclusive(self) -> bool:
        """Whether so many moments have been seen that others would hardly say otherwise."""
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
        """The files that did most of the rest, by name."""
        return ", ".join(name for name, _ in self._library_samples.most_common(2))

    def _take_sample(self) -> bool:
        """Whether somebody was seen at work."""
        self.client.child.stop()
        try:
            if self.client.timer.is_done():
                return True
            pid, *others = self.client.child.stopped_pids
            known = list(self._attribute_threads(pid))
            elsewhere = [one for one in itertools.chain(*map(self._attribute_threads, others)) if one[0] != "neutral"]
            handed_on = bool(others) and pid not in process_memory.find_running_threads(pid)
            waits = handed_on and process_memory.waits_for_process_or_file(pid)
            proves = (
                not handed_on and not process_memory.waits_for_message(pid) and not any(map(_is_interpreter, known))
            )
        finally:
            self.client.child.resume()
        known += [("library", ANOTHER_PROCESS, b"")] * (len(elsewhere) or waits)
        owners = {whose for whose, _, _ in known} - ({"neutral"} if proves else {"neutral", "own"})
        for whose in owners:
            self._samples[whose] += 1 / len(owners)
        self._library_samples.update({Path(path).name for whose, path, _ in known if whose == "library"})
        self._code_samples.update({code for whose, _, code in known if whose == "own" and code})
        return bool(owners)

    def _attribute_threads(self, pid: int) -> Iterator[tuple[str, str, bytes]]:
        """Whose code, from which file, the threads of a process compute, or wait for where it is the first; some code.

        What cannot be read is nobody's: one such thread must not hide the others.
        """
        for at, stack in process_memory.find_running_threads(pid).values():
            path = self._find_file(pid, at, stack)
            yield self._classify_file(path), path, _read_or_empty(pid, at - CODE_BYTES_BEFORE, CODE_BYTES)
        if (stack := process_memory.find_futex_stack(pid)) and (path := self._find_caller(pid, stack)):
            yield self._classify_file(path), path, b""

    def _find_file(self, pid: int, instruction: int, stack: int) -> str:
        """The file that an instruction comes from, or, for one that comes from none, the nearest that called it."""
        if (path := self._file_at(pid, instruction)) is None:
            with contextlib.suppress(OSError):
                self._code_mappings[pid] = process_memory.list_code_mappings(pid)  # something was loaded since
            path = self._file_at(pid, instruction)
        return path or self._find_caller(pid, stack) or ""

    def _find_caller(self, pid: int, stack: int) -> str | None:
        """The file of the nearest code that is somebody's on a stack."""
        words = struct.iter_unpack("=Q", _read_or_empty(pid, stack & ~7, 8 * STACK_WORDS))
        callers = filter(None, (self._file_at(pid, word) for (word,) in words))
        return next((caller for caller in callers if self._classify_file(caller) != "neutral"), None)

    def _file_at(self, pid: int, address: int) -> str | None:
        """Empty for code that was made at run time, None for what is no code."""
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
    """Of a stopped process; empty where it has none there."""
    try:
        return bytes(process_memory.read(pid, address, size))
    except OSError:
        return b""


@dataclass
class _SamplingHook:
    """Looks at a moment of a call that lasts so long, and again while it goes on; soon, where nobody was at work."""

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
