"""One child of a fork server, from the client's side."""

from __future__ import annotations

import select
import socket
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn, Protocol

from kernelwright.core import progress
from kernelwright.core.errors import CrashError, SetupError, TamperingError, TimeLimitError
from kernelwright.sandbox import channel as wire
from kernelwright.sandbox import process_memory
from kernelwright.sandbox.exceptions import deserialize_error, make_crash_error
from kernelwright.sandbox.isolation import Isolation
from kernelwright.sandbox.limits import Deadline, Limits, MemoryMonitor, kill_process_tree
from kernelwright.sandbox.process_limits import protections

START_TIMEOUT_S = 180.0
MAX_READS = 1000
TERMINATE_TIMEOUT_S = 20.0
"""Time limit for a killed child to disappear: destroying a CUDA context takes up to seconds."""
MAX_STOPPED_RUN_NS, MAX_WAKEUPS = 20_000, 2
"""A stopped thread may have been about to run and get the CPU once more for a short time."""


class ServerConnection(Protocol):
    """Connection to the process that forks the child and reports its exit status: the fork server."""

    @property
    def pid(self) -> int: ...
    def send_request(self, message: dict[str, Any], descriptors: list[int] | None = None) -> None: ...
    def receive_reply(self, timeout_s: float) -> dict[str, Any]: ...
    def poll_reply(self) -> dict[str, Any] | None: ...
    def close(self) -> None: ...


class Child:
    """A child process from its fork to its end; created by `ForkServer.fork_child`."""

    def __init__(
        self, server: ServerConnection, scratch_dir: str, limits: Limits, isolation: Isolation | None = None
    ) -> None:
        self._server, self._scratch_dir, self._limits, self._isolation = server, scratch_dir, limits, isolation
        self._pid = 0
        self._stopped_pids: list[int] = []
        self._run_counts, self._wakeups = (0, 0), 0
        self.protections = (*protections(limits), "process limit")
        self._status: int | None = None
        self._ended = False
        self._message: dict[str, Any] = {}
        self._tail, self._output_text = wire.OutputTail(), ""
        self._stage = ""

    def build(self, task: str, payload: dict[str, Any]) -> Any:
        """As `call`, for the call that loads a program: only `limits.build_timeout_s` limits its time."""
        limit_s = self._limits.build_timeout_s
        if limit_s is None:
            return self.call(task, payload)
        self.start_call(task, payload)
        self._deadline = Deadline(limit_s)
        try:
            return self.wait_result()
        except TimeLimitError as error:
            at = f", at: {self._stage}" if self._stage else ""
            message = f"build stopped after {limit_s:g} s (import, compilation and construction){at}"
            raise TimeLimitError(message, next="--build-time allows more", where=error.where) from error

    def call(self, task: str, payload: dict[str, Any]) -> Any:
        """Call `module:function` with the payload in the child; `limits.call_timeout_s` applies to each call.

        Args:
            task: the module is imported in the child, with this process's module path, and stays imported.
            payload: a msgpack tree; bytes may be large.
        Returns:
            What the function returned: a msgpack tree, tuples as lists.
        Raises:
            TimeLimitError, MemoryLimitError, CrashError: the child was stopped or died; it accepts no further calls.
            TaskError: the function raised an exception; `where` is the user's file and line.
            KernelwrightError: the function raised one; it is raised again here.
        """
        self.start_call(task, payload)
        return self.wait_result()

    def start_call(self, task: str, payload: dict[str, Any]) -> None:
        """Start a call as `call` does without waiting for it; `wait_result` must follow.

        Args:
            payload: must be small if the child may be stopped before it has read it.
        """
        if self._ended:
            self.raise_crash()
        if self._stopped_pids:
            self.check_stopped()
            self.resume()
        self._deadline = Deadline(self._limits.call_timeout_s)
        self._outgoing = wire.send_available(self._channel, memoryview(wire.pack({"task": task, "payload": payload})))

    def wait_result(self) -> Any:
        """Wait for the call started by `start_call`; returns and raises what `call` does."""
        try:
            completed = wire.exchange_messages(
                self._channel,
                self._check_limits,
                self._handle_message,
                outgoing=self._outgoing,
                output=(self._output, self._tail),
            )
        except (ValueError, TypeError) as error:
            self.terminate()
            raise TamperingError(f"the process sent a message that cannot be read: {error}") from error
        except BaseException:
            self.terminate()
            raise
        if not completed:
            self.raise_crash()
        if "fault" in self._message:
            raise deserialize_error(self._message["fault"])
        return self._message.pop("answer")

    def check_alive(self) -> bool:
        """Whether the child is still running, for polling between `start_call` and `wait_result`; drains its output.

        Raises:
            TimeLimitError, MemoryLimitError, CrashError: a limit is exceeded.
        """
        for _ in range(MAX_READS):
            if not self._tail.read(self._output):
                break
        return not self._check_limits()

    def has_reply(self) -> bool:
        """Whether data arrived that `wait_result` has not read yet."""
        return bool(select.select([self._channel], [], [], 0)[0])

    def raise_crash(self) -> NoReturn:
        """Raise the error for a child that has ended, whether or not the fork server has reaped it.

        Raises:
            CrashError: with the way it ended.
        """
        self.terminate()
        raise make_crash_error(self._status, self._output_text, self._stage)

    def stop(self) -> None:
        """Stop the child and its descendants; every thread of theirs is stopped on return.

        Raises:
            CrashError: it cannot be stopped.
        """
        try:
            self._stopped_pids = process_memory.stop(self._pid, self._server.pid)
        except TimeoutError as error:
            raise CrashError("the process could not be stopped") from error
        self._run_counts = process_memory.read_run_counts(self._stopped_pids)

    def check_stopped(self) -> None:
        """Check that the child did not run while it was stopped; call it before `resume`.

        Raises:
            TamperingError: it ran for the second time while stopped.
        """
        times, took_ns = (
            now - before
            for now, before in zip(process_memory.read_run_counts(self._stopped_pids), self._run_counts, strict=True)
        )
        self._wakeups += times > 0 and took_ns > MAX_STOPPED_RUN_NS
        if self._wakeups >= MAX_WAKEUPS:
            raise TamperingError(f"the process ran for {took_ns / 1e3:.0f} us while stopped")

    def resume(self) -> None:
        """Continue the stopped processes."""
        process_memory.resume(self._stopped_pids)
        self._stopped_pids = []

    @property
    def stopped_pids(self) -> Sequence[int]:
        """Process ids of the child and its descendants while they are stopped, else empty."""
        return self._stopped_pids

    @property
    def pid(self) -> int:
        """Process id of the child; 0 before it is launched."""
        return self._pid

    @property
    def scratch_dir(self) -> str:
        """The child's private scratch folder."""
        return self._scratch_dir

    def launch(self) -> None:
        """Request the child from the fork server.

        Raises:
            SetupError: the fork server has died.
        """
        self._channel, theirs = socket.socketpair()
        self._output, written = socket.socketpair()
        with theirs, written:
            path = [str(Path(entry).resolve()) for entry in sys.path]
            isolation = self._isolation and asdict(self._isolation)
            request = {"scratch": self._scratch_dir, "path": path, "isolation": isolation}
            self._server.send_request(request, [theirs.fileno(), written.fileno()])
        try:
            self._pid = self._server.receive_reply(START_TIMEOUT_S)["pid"]
            if isolation:  # sent before any untrusted code runs that could forge it
                self._channel.settimeout(START_TIMEOUT_S)
                self.protections += tuple(wire.receive(self._channel)["protections"])
        except (EOFError, TimeoutError) as error:
            message = "the sandbox process died before it could start the program"
            raise SetupError(message, next="run it again") from error
        for ours in (self._channel, self._output):
            ours.setblocking(False)
        self._memory = MemoryMonitor(self._server.pid, self._limits.memory_bytes, exclude_root=True)

    def terminate(self) -> None:
        """Kill the child and wait until the fork server has reaped it and its descendants.

        A fork server that does not reply is ended too.
        """
        if not self._ended and self._pid:
            self._server.send_request({"kill": self._pid})
            try:
                while "exit" not in (reply := self._server.receive_reply(TERMINATE_TIMEOUT_S)):
                    pass
                self._status = reply["exit"]
            except (EOFError, OSError):
                pass
        self._ended = True
        if self._status is None:
            if self._pid:
                kill_process_tree(self._pid)
            self._server.close()
        if self._output.fileno() >= 0:
            self._output_text = self._tail.drain(self._output)
        self._channel.close()
        self._output.close()

    def _check_limits(self) -> bool:
        self._deadline.check()
        self._memory.check()
        return self._has_ended()

    def _handle_message(self, message: Any) -> bool:
        if not isinstance(message, dict) or not message.keys() & {"stage", "answer", "fault"}:
            raise ValueError(f"unknown message {str(message)[:80]}")
        if "stage" in message:
            self._stage, limit_s = str(message["stage"]), message.get("limit_s")
            if limit_s is not None and not isinstance(limit_s, (int, float)):
                raise ValueError(f"limit {str(limit_s)[:80]}")
            progress.report_stage(self._stage, limit_s)
            return False
        self._message = message
        return True

    def _has_ended(self) -> bool:
        if self._ended:
            return True
        try:
            reply = self._server.poll_reply()
        except EOFError:
            self._ended = True
            return True
        if reply and "exit" in reply:
            self._ended, self._status = True, reply["exit"]
        return self._ended
