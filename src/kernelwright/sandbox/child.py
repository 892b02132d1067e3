"""One child of a nursery, seen from the asker."""

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
"""How long a killed child may take to be gone: tearing down a CUDA context takes up to seconds."""
MAX_STOPPED_RUN_NS, MAX_WAKEUPS = 20_000, 2
"""What stands still may have been about to, and be given a processor once more for a moment."""


class ServerConnection(Protocol):
    """Who forks a child when told to, and says what became of it: the nursery."""

    @property
    def pid(self) -> int: ...
    def send_request(self, message: dict[str, Any], descriptors: list[int] | None = None) -> None: ...
    def receive_reply(self, timeout_s: float) -> dict[str, Any]: ...
    def poll_reply(self) -> dict[str, Any] | None: ...
    def close(self) -> None: ...


class Child:
    """From its fork to its end. Made by `Nursery.child`."""

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
        """As `call`, for the one that loads a program: `limits.build_timeout_s` holds for it, and no other limit in
        time."""
        limit_s = self._limits.build_timeout_s
        if limit_s is None:
            return self.call(task, payload)
        self.start_call(task, payload)
        self._deadline = Deadline(limit_s)
        try:
            return self.wait_result()
        except TimeLimitError as fault:
            at = f", at: {self._stage}" if self._stage else ""
            message = f"stopped after {limit_s:g} s of being loaded: imported, compiled and constructed{at}"
            raise TimeLimitError(message, next="--build-time allows more", where=fault.where) from fault

    def call(self, task: str, payload: dict[str, Any]) -> Any:
        """Calls `module:function` with the payload in the child; `limits.call_timeout_s` holds for each call.

        Args:
            task: the module is imported in the child, with this process's module path, and stays imported.
            payload: a msgpack tree; bytes may be large.
        Returns:
            What the function returned: a msgpack tree, tuples as lists.
        Raises:
            TimeLimitError, MemoryLimitError, CrashError: the child was stopped or died, and takes no further call.
            TaskError: the function raised something; `where` is the person's file and line.
            KernelwrightError: the function raised one, which is raised again here.
        """
        self.start_call(task, payload)
        return self.wait_result()

    def start_call(self, task: str, payload: dict[str, Any]) -> None:
        """Asks for a call as `call` does, and does not wait: `wait_result` does, and must follow.

        Args:
            payload: small, where the child may be stopped meanwhile.
        """
        if self._ended:
            self.raise_crash()
        if self._stopped_pids:
            self.check_stopped()
            self.resume()
        self._deadline = Deadline(self._limits.call_timeout_s)
        self._outgoing = wire.send_available(self._channel, memoryview(wire.pack({"task": task, "payload": payload})))

    def wait_result(self) -> Any:
        """Returns and raises what `call` does."""
        try:
            answered = wire.exchange_messages(
                self._channel,
                self._check_limits,
                self._handle_message,
                outgoing=self._outgoing,
                output=(self._output, self._tail),
            )
        except (ValueError, TypeError) as fault:
            self.terminate()
            raise TamperingError(f"the process sent an answer that cannot be read: {fault}") from fault
        except BaseException:
            self.terminate()
            raise
        if not answered:
            self.raise_crash()
        if "fault" in self._message:
            raise deserialize_error(self._message["fault"])
        return self._message.pop("answer")

    def check_alive(self) -> bool:
        """Whether it runs on: between `start_call` and `wait_result`, for whoever waits for something else. What it
        writes flows.

        Raises:
            TimeLimitError, MemoryLimitError, CrashError: it is over a limit.
        """
        for _ in range(MAX_READS):
            if not self._tail.read(self._output):
                break
        return not self._check_limits()

    def has_reply(self) -> bool:
        """Whether something came that `wait_result` has not read yet."""
        return bool(select.select([self._channel], [], [], 0)[0])

    def raise_crash(self) -> NoReturn:
        """For a caller that found the process gone, before or while the nursery reaps it.

        Raises:
            CrashError: how it ended.
        """
        self.terminate()
        raise make_crash_error(self._status, self._output_text, self._stage)

    def stop(self) -> None:
        """Every thread of it and of what it started stands still when this returns.

        Raises:
            CrashError: it cannot be stopped.
        """
        try:
            self._stopped_pids = process_memory.stop(self._pid, self._server.pid)
        except TimeoutError as fault:
            raise CrashError("the process could not be stopped") from fault
        self._run_counts = process_memory.read_run_counts(self._stopped_pids)

    def check_stopped(self) -> None:
        """Asks whether it has stood still since it was stopped; before it is resumed.

        Raises:
            ForgedError: it has had itself woken, and not for the first time.
        """
        times, took_ns = (
            now - then
            for now, then in zip(process_memory.read_run_counts(self._stopped_pids), self._run_counts, strict=True)
        )
        self._wakeups += times > 0 and took_ns > MAX_STOPPED_RUN_NS
        if self._wakeups >= MAX_WAKEUPS:
            raise TamperingError(f"it ran for {took_ns / 1e3:.0f} us while the judge had stopped it")

    def resume(self) -> None:
        process_memory.resume(self._stopped_pids)
        self._stopped_pids = []

    @property
    def stopped_pids(self) -> Sequence[int]:
        """It and what it started, while it stands still."""
        return self._stopped_pids

    @property
    def pid(self) -> int:
        return self._pid

    @property
    def scratch_dir(self) -> str:
        """The folder that is its alone."""
        return self._scratch_dir

    def launch(self) -> None:
        """Asks the nursery for the child.

        Raises:
            SetupError: the nursery has died.
        """
        self._channel, theirs = socket.socketpair()
        self._output, written = socket.socketpair()
        with theirs, written:
            path = [str(Path(entry).resolve()) for entry in sys.path]
            cage = self._isolation and asdict(self._isolation)
            request = {"scratch": self._scratch_dir, "path": path, "cage": cage}
            self._server.send_request(request, [theirs.fileno(), written.fileno()])
        try:
            self._pid = self._server.receive_reply(START_TIMEOUT_S)["pid"]
            if cage:  # said before a stranger's code is there to say anything
                self._channel.settimeout(START_TIMEOUT_S)
                self.protections += tuple(wire.receive(self._channel)["protections"])
        except (EOFError, TimeoutError) as fault:
            message = "the sandbox process died before it could start the program"
            raise SetupError(message, next="run it again") from fault
        for ours in (self._channel, self._output):
            ours.setblocking(False)
        self._memory = MemoryMonitor(self._server.pid, self._limits.memory_bytes, exclude_root=True)

    def terminate(self) -> None:
        """Kills the child and waits until the nursery has reaped it and swept; a nursery that fails is ended too."""
        if not self._ended and self._pid:
            self._server.send_request({"kill": self._pid})
            try:
                while "exit" not in (said := self._server.receive_reply(TERMINATE_TIMEOUT_S)):
                    pass
                self._status = said["exit"]
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
            raise ValueError(f"an unknown message: {str(message)[:80]}")
        if "stage" in message:
            self._stage = str(message["stage"])
            progress.report_stage(self._stage, message.get("limit_s"))
            return False
        self._message = message
        return True

    def _has_ended(self) -> bool:
        if self._ended:
            return True
        try:
            said = self._server.poll_reply()
        except EOFError:
            self._ended = True
            return True
        if said and "exit" in said:
            self._ended, self._status = True, said["exit"]
        return self._ended
