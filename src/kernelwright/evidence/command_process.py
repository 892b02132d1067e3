"""A command in a process of its own, on some of the cores, timed from its start to its end."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from kernelwright.measure.clock import wall_s
from kernelwright.sandbox.limits import kill_process_tree
from kernelwright.sandbox.process_limits import die_with_parent

POLL_S = 0.02
"""How often `wait` looks, which is the resolution of `wall_s`."""
KILL_TIMEOUT_S = 10.0
"""A process in a driver that does not return cannot be killed; it is left after this time."""


class CommandProcess:
    """A running command with a time limit; on Linux it also ends when this process dies.

    Attributes:
        wall_s: seconds until it ended; those so far while it runs.
        exit_code: negative for a signal; None while it runs.
        timed_out: whether it was killed at its time limit.

    Args:
        environment: all variables of the process.
        cores: that the process and its descendants may use.
        limit_s: seconds after which they are killed.
        folder: where the output is stored.
    """

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], cores: set[int], limit_s: float, folder: Path
    ) -> None:
        self._output, self._errors, self._limit_s = folder / "stdout", folder / "stderr", limit_s
        self.wall_s, self.exit_code, self.timed_out = 0.0, None, False
        with self._output.open("wb") as output, self._errors.open("wb") as errors, running_on(cores):
            self._start_s = wall_s()
            self._process = subprocess.Popen(
                command,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                start_new_session=True,
                preexec_fn=partial(die_with_parent, os.getpid()),
            )

    @property
    def output(self) -> bytes:
        """What it wrote to stdout."""
        return self._output.read_bytes()

    @property
    def last_error_line(self) -> str:
        """The last line that it wrote to stderr; empty without one."""
        lines = self._errors.read_text("utf-8", "replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "")

    def wait(self, timeout_s: float = POLL_S) -> bool:
        """Wait for the end, at most `timeout_s`; True if it has ended, also by its time limit."""
        if self.exit_code is not None:
            return True
        try:
            self.exit_code = self._process.wait(timeout_s)
            self.wall_s = wall_s() - self._start_s
        except subprocess.TimeoutExpired:
            self.wall_s = wall_s() - self._start_s
            if self.wall_s > self._limit_s:
                self.timed_out = True
                self.kill()
        return self.exit_code is not None

    def kill(self) -> None:
        """Kill the process and its descendants; on return all have ended."""
        if self.exit_code is None:
            kill_process_tree(self._process.pid, KILL_TIMEOUT_S)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(KILL_TIMEOUT_S)
            self.exit_code = self._process.returncode or -signal.SIGKILL


@contextmanager
def running_on(cores: set[int]) -> Iterator[None]:
    """Let processes that are started within the block run on these cores only, where the system can do that."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
