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
from kernelwright.verification.attacks.library_match import holder
from kernelwright.verification.transport.client import Line

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
BEFORE_BYTES, CODE_BYTES = 16, 48
"""Of the code around an instruction: so much is the same in two programs only where one has it from the other."""
ANOTHER_PROCESS = "another process"
MADE_AT_RUN_TIME = ("/memfd:", "//anon", "[anon", "/dev/zero")
COMPILERS = ("numba", "llvmlite", "triton")
"""What calls code that a candidate wrote and had compiled at run time."""
NEUTRAL = (
    "libc.", "libc-", "libm.", "libm-", "ld-linux", "libgomp", "libomp", "libiomp", "libstdc++", "libgcc", "libpthread",
    "libpython", "python", "[vdso]", "[vsyscall]", "libdl", "_ctypes", "libffi", "_struct", "_random", "mmap.",
)  # fmt: skip
INTERPRETER = re.compile(r"/(lib)?python[^/]*$")


@dataclass
class Ownership:
    """Counts moments of calls by whose code ran.

    Args:
        line: the candidate's.
        folders: what is compiled there is the candidate's own.
        draw: gives fresh inputs by number.
    """

    line: Line
    folders: tuple[str, ...]
    draw: Callable[[int], Args]
    _calls: int = 0
    _start_s: float = 0.0
    _lasts_us: float = math.inf
    _seen: dict[str, float] = field(default_factory=lambda: {"own": 0.0, "library": 0.0})
    _libraries: Counter[str] = field(default_factory=Counter)
    _instructions: Counter[bytes] = field(default_factory=Counter)
    _code: dict[int, list[tuple[int, int, str]]] = field(default_factory=dict)

    def look(self) -> None:
        """Makes one more call, and looks into it."""
        inputs, self._calls = self.draw(self._calls), self._calls + 1
        if self._calls <= WARM_CALLS:
            self._lasts_us = min(self._lasts_us, self.line.call(inputs, look=False).window.claimed_us)
            self._start_s = wall_s()
            return
        self.line.call(inputs, look=False, peek=_Peek(self._moment, max(self._lasts_us, 1.0)))

    @property
    def is_over(self) -> bool:
        """Whether enough has been seen, or it takes too long."""
        if self._calls <= WARM_CALLS:
            return False
        patience_s = BUDGET_S if self._whose_total >= TOO_FEW else PATIENT_S
        return self._is_clear or self._calls >= MOST_CALLS or wall_s() - self._start_s > patience_s

    @functools.cached_property
    def share(self) -> float | None:
        """Of the time in which anybody's code ran, the candidate's own; None where too little was seen. Asked last."""
        if self._whose_total < TOO_FEW:
            return None
        share = self._seen["own"] / self._whose_total
        if share >= LEAST_OWN and (library := holder(list(self._instructions))):
            self._libraries = Counter({f"a copy of {library}": 1})
            return 0.0
        return share

    @property
    def _is_clear(self) -> bool:
        """Whether so many moments have been seen that others would hardly say otherwise."""
        if (total := self._whose_total) < ENOUGH:
            return False
        share = self._seen["own"] / total
        return total >= PLENTY or abs(share - LEAST_OWN) > SPREAD * math.sqrt(share * (1 - share) / total)

    @property
    def _whose_total(self) -> float:
        return self._seen["own"] + self._seen["library"]

    @property
    def libraries(self) -> str:
        """The files that did most of the rest, by name."""
        return ", ".join(name for name, _ in self._libraries.most_common(2))

    def _moment(self) -> bool:
        """Whether somebody was seen at work."""
        self.line.child.stop()
        try:
            if self.line.watch.is_done():
                return True
            pid, *others = self.line.child.stopped
            known = list(self._working(pid))
            elsewhere = [one for one in itertools.chain(*map(self._working, others)) if one[0] != "neutral"]
            handed_on = bool(others) and pid not in process_memory.computing_at(pid)
            waits = handed_on and process_memory.waits_for_another(pid)
            proves = not handed_on and not process_memory.listens(pid) and not any(map(_interprets, known))
        finally:
            self.line.child.resume()
        known += [("library", ANOTHER_PROCESS, b"")] * (len(elsewhere) or waits)
        owners = {whose for whose, _, _ in known} - ({"neutral"} if proves else {"neutral", "own"})
        for whose in owners:
            self._seen[whose] += 1 / len(owners)
        self._libraries.update({Path(path).name for whose, path, _ in known if whose == "library"})
        self._instructions.update({code for whose, _, code in known if whose == "own" and code})
        return bool(owners)

    def _working(self, pid: int) -> Iterator[tuple[str, str, bytes]]:
        """Whose code, from which file, the threads of a process compute, or wait for where it is the first; some code.

        What cannot be read is nobody's: one such thread must not hide the others.
        """
        for at, stack in process_memory.computing_at(pid).values():
            path = self._path(pid, at, stack)
            yield self._whose(path), path, _bytes(pid, at - BEFORE_BYTES, CODE_BYTES)
        if (stack := process_memory.waiting_at(pid)) and (path := self._caller(pid, stack)):
            yield self._whose(path), path, b""

    def _path(self, pid: int, instruction: int, stack: int) -> str:
        """The file that an instruction comes from, or, for one that comes from none, the nearest that called it."""
        if (path := self._file_of(pid, instruction)) is None:
            with contextlib.suppress(OSError):
                self._code[pid] = process_memory.code_of(pid)  # something was loaded since
            path = self._file_of(pid, instruction)
        return path or self._caller(pid, stack) or ""

    def _caller(self, pid: int, stack: int) -> str | None:
        """The file of the nearest code that is somebody's on a stack."""
        words = struct.iter_unpack("=Q", _bytes(pid, stack & ~7, 8 * STACK_WORDS))
        callers = filter(None, (self._file_of(pid, word) for (word,) in words))
        return next((caller for caller in callers if self._whose(caller) != "neutral"), None)

    def _file_of(self, pid: int, address: int) -> str | None:
        """Empty for code that was made at run time, None for what is no code."""
        for start, end, path in self._code.get(pid, ()):
            if start <= address < end:
                return "" if path.startswith(MADE_AT_RUN_TIME) else path
        return None

    def _whose(self, path: str) -> str:
        if not path or path.startswith(self.folders) or any(f"/{name}/" in path for name in COMPILERS):
            return "own"
        return "neutral" if Path(path).name.startswith(NEUTRAL) else "library"


def _interprets(working: tuple[str, str, bytes]) -> bool:
    return bool(INTERPRETER.search(working[1]))


def _bytes(pid: int, address: int, size: int) -> bytes:
    """Of a stopped process; empty where it has none there."""
    try:
        return bytes(process_memory.read(pid, address, size))
    except OSError:
        return b""


@dataclass
class _Peek:
    """Looks at a moment of a call that lasts so long, and again while it goes on; soon, where nobody was at work."""

    look: Callable[[], bool]
    lasts_us: float
    _at_us: float = field(init=False)

    def __post_init__(self) -> None:
        self._at_us = self._any_us()

    def __call__(self, running_us: float) -> None:
        if running_us >= self._at_us:
            self._at_us = running_us + (PEEK_EVERY_US if self.look() else min(self._any_us(), PEEK_EVERY_US))

    def _any_us(self) -> float:
        return self.lasts_us * random.SystemRandom().random()
