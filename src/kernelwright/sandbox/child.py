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
from kernelwright.core.errors import CrashError, ForgedError, SetupError, TimeLimitError
from kernelwright.sandbox import channel as wire
from kernelwright.sandbox import process_memory
from kernelwright.sandbox.exceptions import crash, revive
from kernelwright.sandbox.isolation import Cage
from kernelwright.sandbox.limits import Deadline, Limits, MemoryWatch, kill_family
from kernelwright.sandbox.process_limits import protections

START_LIMIT_S = 180.0
MOST_READS = 1000
END_LIMIT_S = 20.0
"""How long a killed child may take to be gone: tearing down a CUDA context takes up to seconds."""
WOKEN_NS, WOKEN_TIMES = 20_000, 2
"""What stands still may have been about to, and be given a processor once more for a moment."""


class Parent(Protocol):
    """Who forks a child when told to, and says what became of it: the nursery."""

    @property
    def pid(self) -> int: ...
    def tell(self, message: dict[str, Any], descriptors: list[int] | None = None) -> None: ...
    def hear(self, limit_s: float) -> dict[str, Any]: ...
    def heard(self) -> dict[str, Any] | None: ...
    def close(self) -> None: ...


class Child:
    """From its fork to its end. Made by `Nursery.child`."""

    def __init__(self, nursery: Parent, scratch: str, limits: Limits, cage: Cage | None = None) -> None:
        self._nursery, self._scratch, self._limits, self._cage = nursery, scratch, limits, cage
        self._pid = 0
        self._stopped: list[int] = []
        self._ran, self._woken = (0, 0), 0
        self.protections = (*protections(limits), "process limit")
        self._status: int | None = None
        self._ended = False
        self._message: dict[str, Any] = {}
        self._tail, self._output_text = wire.Tail(), ""
        self._stage = ""

    def build(self, task: str, payload: dict[str, Any]) -> Any:
        """As `call`, for the one that loads a program: `limits.build_s` holds for it, and no other limit in time."""
        limit_s = self._limits.build_s
        if limit_s is None:
            return self.call(task, payload)
        self.start(task, payload)
        self._deadline = Deadline(limit_s)
        try:
            return self.answer()
        except TimeLimitError as fault:
            at = f", at: {self._stage}" if self._stage else ""
            message = f"stopped after {limit_s:g} s of being loaded: imported, compiled and constructed{at}"
            raise TimeLimitError(message, next="--build-time allows more", where=fault.where) from fault

    def call(self, task: str, payload: dict[str, Any]) -> Any:
        """Calls `module:function` with the payload in the child; `limits.time_s` holds for each call.

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
        self.start(task, payload)
        return self.answer()

    def start(self, task: str, payload: dict[str, Any]) -> None:
        """Asks for a call as `call` does, and does not wait: `answer` does, and must follow.

        Args:
            payload: small, where the child may be stopped meanwhile.
        """
        if self._ended:
            self.raise_crash()
        if self._stopped:
            self.stood()
            self.resume()
        self._deadline = Deadline(self._limits.time_s)
        self._order = wire.push(self._channel, memoryview(wire.pack({"task": task, "payload": payload})))

    def answer(self) -> Any:
        """Returns and raises what `call` does."""
        try:
            answered = wire.follow(
                self._channel, self._tick, self._hear, outgoing=self._order, output=(self._output, self._tail)
            )
        except (ValueError, TypeError) as fault:
            self.end()
            raise ForgedError(f"the process sent an answer that cannot be read: {fault}") from fault
        except BaseException:
            self.end()
            raise
        if not answered:
            self.raise_crash()
        if "fault" in self._message:
            raise revive(self._message["fault"])
        return self._message.pop("answer")

    def alive(self) -> bool:
        """Whether it runs on: between `start` and `answer`, for whoever waits for something else. What it writes flows.

        Raises:
            TimeLimitError, MemoryLimitError, CrashError: it is over a limit.
        """
        for _ in range(MOST_READS):
            if not self._tail.read(self._output):
                break
        return not self._tick()

    def has_answered(self) -> bool:
        """Whether something came that `answer` has not read yet."""
        return bool(select.select([self._channel], [], [], 0)[0])

    def raise_crash(self) -> NoReturn:
        """For a caller that found the process gone, before or while the nursery reaps it.

        Raises:
            CrashError: how it ended.
        """
        self.end()
        raise crash(self._status, self._output_text, self._stage)

    def stop(self) -> None:
        """Every thread of it and of what it started stands still when this returns.

        Raises:
            CrashError: it cannot be stopped.
        """
        try:
            self._stopped = process_memory.stop(self._pid, self._nursery.pid)
        except TimeoutError as fault:
            raise CrashError("the process could not be stopped") from fault
        self._ran = process_memory.ran(self._stopped)

    def stood(self) -> None:
        """Asks whether it has stood still since it was stopped; before it is resumed.

        Raises:
            ForgedError: it has had itself woken, and not for the first time.
        """
        times, took_ns = (now - then for now, then in zip(process_memory.ran(self._stopped), self._ran, strict=True))
        self._woken += times > 0 and took_ns > WOKEN_NS
        if self._woken >= WOKEN_TIMES:
            raise ForgedError(f"it ran for {took_ns / 1e3:.0f} us while the judge had stopped it")

    def resume(self) -> None:
        process_memory.resume(self._stopped)
        self._stopped = []

    @property
    def stopped(self) -> Sequence[int]:
        """It and what it started, while it stands still."""
        return self._stopped

    @property
    def pid(self) -> int:
        return self._pid

    @property
    def scratch(self) -> str:
        """The folder that is its alone."""
        return self._scratch

    def begin(self) -> None:
        """Asks the nursery for the child.

        Raises:
            SetupError: the nursery has died.
        """
        self._channel, theirs = socket.socketpair()
        self._output, written = socket.socketpair()
        with theirs, written:
            path = [str(Path(entry).resolve()) for entry in sys.path]
            cage = self._cage and asdict(self._cage)
            request = {"scratch": self._scratch, "path": path, "cage": cage}
            self._nursery.tell(request, [theirs.fileno(), written.fileno()])
        try:
            self._pid = self._nursery.hear(START_LIMIT_S)["pid"]
            if cage:  # said before a stranger's code is there to say anything
                self._channel.settimeout(START_LIMIT_S)
                self.protections += tuple(wire.receive(self._channel)["protections"])
        except (EOFError, TimeoutError) as fault:
            message = "the sandbox process died before it could start the program"
            raise SetupError(message, next="run it again") from fault
        for ours in (self._channel, self._output):
            ours.setblocking(False)
        self._memory = MemoryWatch(self._nursery.pid, self._limits.memory_bytes, beneath=True)

    def end(self) -> None:
        """Kills the child and waits until the nursery has reaped it and swept; a nursery that fails is ended too."""
        if not self._ended and self._pid:
            self._nursery.tell({"kill": self._pid})
            try:
                while "exit" not in (said := self._nursery.hear(END_LIMIT_S)):
                    pass
                self._status = said["exit"]
            except (EOFError, OSError):
                pass
        self._ended = True
        if self._status is None:
            if self._pid:
                kill_family(self._pid)
            self._nursery.close()
        if self._output.fileno() >= 0:
            self._output_text = self._tail.drain(self._output)
        self._channel.close()
        self._output.close()

    def _tick(self) -> bool:
        self._deadline.check()
        self._memory.check()
        return self._has_ended()

    def _hear(self, message: Any) -> bool:
        if not isinstance(message, dict) or not message.keys() & {"stage", "answer", "fault"}:
            raise ValueError(f"an unknown message: {str(message)[:80]}")
        if "stage" in message:
            self._stage = str(message["stage"])
            progress.stage(self._stage, message.get("limit_s"))
            return False
        self._message = message
        return True

    def _has_ended(self) -> bool:
        if self._ended:
            return True
        try:
            said = self._nursery.heard()
        except EOFError:
            self._ended = True
            return True
        if said and "exit" in said:
            self._ended, self._status = True, said["exit"]
        return self._ended
