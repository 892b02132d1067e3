"""Run a whole command of the command line in a child process, so that a crash of the program cannot end `kw`."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from kernelwright.core import progress
from kernelwright.core.errors import CrashError
from kernelwright.sandbox import channel as wire
from kernelwright.sandbox.exceptions import deserialize_error, make_crash_error, serialize_error
from kernelwright.sandbox.limits import Deadline, MemoryMonitor, process_tree, wait_or_kill
from kernelwright.sandbox.process_limits import DEFAULT_ENVIRONMENT, die_with_parent

CLEANUP_TIMEOUT_S = 10.0
"""Time limit for a fork server to end its child and delete the scratch folder after its client has died."""


def run_supervised(
    task: Callable[[], bytes],
    *,
    on_stage: Callable[[str], None] | None = None,
    on_tick: Callable[[], None] | None = None,
    memory_bytes: int | None = None,
    limit_memory: bool = True,
    debug: bool = False,
) -> bytes:
    """Fork this process (which must not have used torch) and run `task` in the child.

    `core.progress.stage` in the child, and in its `ForkServer` children, is passed on to `on_stage`; each stage's
    `limit_s` is enforced here. The child's stdout is redirected to stderr; it keeps the working folder and the
    environment, with `process_limits.DEFAULT_ENVIRONMENT` for variables that the user has not set.

    Args:
        task: returns the result as bytes.
        on_stage: called with each stage that begins.
        on_tick: called at least every 50 ms while the child runs.
        memory_bytes: limit for the child and its descendants; None is 80 % of what is available now.
        limit_memory: False for a task that runs commands which are supervised themselves, each by its own process: no
            limit of memory or of the number of processes holds for all of them together.
        debug: also write the child's traceback to stderr.
    Raises:
        TimeLimitError, MemoryLimitError, CrashError: the child was stopped or died.
        KernelwrightError: as the task raised it.
        InternalError: the task raised anything else; the message holds the traceback.
    """
    ours, theirs = socket.socketpair()
    sys.stdout.flush()
    sys.stderr.flush()
    parent, pid = os.getpid(), os.fork()
    if pid == 0:
        ours.close()
        _run_child(task, theirs, parent, debug)
    theirs.close()
    ours.setblocking(False)
    with ours:
        return _SupervisedProcess(pid, on_stage or (lambda what: None), on_tick or (lambda: None)).wait_result(
            ours, memory_bytes, limit_memory=limit_memory
        )


class _SupervisedProcess:
    """The parent's side: the child's process id, current stage and last message."""

    def __init__(self, pid: int, on_stage: Callable[[str], None], on_tick: Callable[[], None]) -> None:
        self._pid, self._on_stage, self._on_tick = pid, on_stage, on_tick
        self._status: int | None = None
        self._deadline = Deadline(None)
        self._message: dict[str, Any] = {}

    def wait_result(self, channel: socket.socket, memory_bytes: int | None, *, limit_memory: bool) -> bytes:
        """Enforce the limits until the child has sent its result, and end its process tree."""
        try:
            memory = MemoryMonitor(self._pid, memory_bytes) if limit_memory else None

            def tick() -> bool:
                self._deadline.check()
                if memory:
                    memory.check()
                self._on_tick()
                return self._has_ended()

            completed = wire.exchange_messages(channel, tick, self._handle_message)
        except ValueError as error:
            raise CrashError(f"the process sent a message that cannot be read: {error}") from error
        finally:
            self._terminate()
        if not completed:
            raise make_crash_error(self._status, "", self._deadline.stage)
        if "fault" in self._message:
            raise deserialize_error(self._message["fault"])
        return self._message["answer"]

    def _handle_message(self, message: dict[str, Any]) -> bool:
        if "stage" not in message:
            self._message = message
            return True
        self._deadline.stage = message["stage"]
        self._deadline.restart(message["limit_s"])
        self._on_stage(message["stage"])
        return False

    def _has_ended(self) -> bool:
        if self._status is None:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            self._status = status if pid else None
        return self._status is not None

    def _terminate(self) -> None:
        """Kill the child's session and wait for fork servers in sessions of their own to clean up, then kill those."""
        started = process_tree(self._pid)[1:]
        # Also if the child has ended by itself: processes of the program may be left in its session.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._pid, signal.SIGKILL)
        if not self._has_ended():
            # A child that has not run yet has no process group.
            os.kill(self._pid, signal.SIGKILL)
            self._status = os.waitpid(self._pid, 0)[1]
        wait_or_kill(started, CLEANUP_TIMEOUT_S)


def _run_child(task: Callable[[], bytes], channel: socket.socket, parent_pid: int, debug: bool) -> NoReturn:
    """Run the child: detach it, run the task, send the result, exit without exit handlers."""
    own = os.getpid()
    try:
        os.setsid()
        die_with_parent(parent_pid)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(2, 1)
        # Torch is not loaded yet. Times measured here are compared with those of a fork server: use the same policy.
        os.environ.update(DEFAULT_ENVIRONMENT | os.environ)
        progress.set_listener(lambda what, limit_s: wire.send(channel, {"stage": what, "limit_s": limit_s}))
        message = _run_task(task, debug)
        _flush()  # the parent kills this process once it has the result
        if os.getpid() == own:
            wire.send(channel, message)
    finally:
        _flush()
        os._exit(0)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(BaseException):
            stream.flush()


def _run_task(task: Callable[[], bytes], debug: bool) -> dict[str, Any]:
    try:
        return {"answer": task()}
    except BaseException as error:
        serialized = serialize_error(error, user_code=False)
        if debug:
            sys.stderr.write(serialized["trace"])
        return {"fault": serialized}
