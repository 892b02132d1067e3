"""The asker's side of the nursery."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from kernelwright.core import progress
from kernelwright.core.errors import CrashError, InternalError
from kernelwright.sandbox import channel as wire
from kernelwright.sandbox.confine import environment
from kernelwright.sandbox.faults import PACKAGE, crash, revive
from kernelwright.sandbox.limits import Deadline, Limits, MemoryWatch, kill_family

START_LIMIT_S = 180.0
END_LIMIT_S = 20.0
"""How long a killed child may take to be gone: tearing down a CUDA context takes up to seconds."""


class Nursery:
    """A warm process that has imported torch, and bears a fresh child for every run in about 16 ms.

    Used as a context manager; one child at a time (other threads wait). It starts when it is entered, or by the first
    run, and again after it has died.

    Args:
        preload: modules that the warm process imports, so that children need not. They must not run a parallel
            operator or touch CUDA: neither survives a fork.
    """

    def __init__(self, preload: tuple[str, ...] = ("torch",)) -> None:
        self._preload = preload
        self._lock = threading.RLock()
        self._process: subprocess.Popen | None = None
        self._control: socket.socket | None = None
        self._errors: IO[bytes] | None = None
        self._ready = self._busy = False

    def __enter__(self) -> Nursery:
        self._start()  # the imports take over a second: let them run while the caller does something else
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, task: str, payload: dict[str, Any], limits: Limits) -> Any:
        """Calls `module:function` with the payload in a fresh child: `child` with a single call."""
        with self.child(limits) as child:
            return child.call(task, payload)

    @contextlib.contextmanager
    def child(self, limits: Limits) -> Iterator[Child]:
        """A fresh child for several calls, gone with everything it started when the block ends.

        Raises:
            CrashError: the warm process cannot be started or dies.
        """
        with self._lock:
            if self._busy:
                raise InternalError("a nursery bears one child at a time: take a second nursery")
            self._ensure()
            scratch = tempfile.mkdtemp(prefix="kernelwright-")
            child, self._busy = Child(self, scratch, limits), True
            try:
                child.begin()
                yield child
            finally:
                child.end()
                self._busy = False
                shutil.rmtree(scratch, ignore_errors=True)

    def close(self) -> None:
        """Ends the warm process and everything under it."""
        control, process, errors = self._control, self._process, self._errors
        self._control = self._process = self._errors = None
        self._ready = False
        if control:
            control.close()  # the nursery reads end-of-file, sweeps and leaves
        if process:
            try:
                process.wait(END_LIMIT_S)
            except subprocess.TimeoutExpired:
                kill_family(process.pid)
                process.wait()
        if errors:
            errors.close()

    def _start(self) -> None:
        """Starts the warm process when there is none; does not wait for it."""
        if self._process and self._process.poll() is None:
            return
        self.close()
        self._control, theirs = socket.socketpair()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "kernelwright.sandbox.nursery", str(theirs.fileno()), *self._preload],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._errors,
                env=_nursery_environment(),
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C is ours to handle: the nursery must live to clean up
            )

    def _ensure(self) -> None:
        """Waits until the warm process is ready for requests."""
        self._start()
        if self._ready:
            return
        try:
            self._ready = self.hear(START_LIMIT_S)["ready"]
        except (EOFError, TimeoutError) as fault:
            assert self._errors
            self._errors.seek(0)
            tail = self._errors.read()[-2000:].decode(errors="replace").strip()
            raise CrashError(f"the sandbox process did not start\n{tail}") from fault
        finally:
            if not self._ready:
                self.close()

    def tell(self, message: dict[str, Any], descriptors: list[int] | None = None) -> None:
        """Sends one request. A dead nursery is found when its answer is awaited."""
        if self._control is None:
            return
        with contextlib.suppress(OSError):
            self._control.settimeout(END_LIMIT_S)
            counted = message | {"descriptors": len(descriptors or [])}
            socket.send_fds(self._control, [wire.pack(counted)], descriptors or [])

    def hear(self, limit_s: float) -> dict[str, Any]:
        """Raises:
        EOFError: the nursery is dead.
        TimeoutError: it says nothing.
        """
        if self._control is None:
            raise EOFError
        self._control.settimeout(limit_s)
        return wire.receive(self._control)

    def heard(self) -> dict[str, Any] | None:
        """What the nursery has said already, if anything; it sends whole messages, smaller than a packet.

        Raises:
            EOFError: the nursery is dead.
        """
        if self._control is None:
            raise EOFError
        self._control.setblocking(False)
        try:
            waiting = self._control.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return None
        except OSError as fault:
            raise EOFError from fault
        if not waiting:
            raise EOFError
        return self.hear(END_LIMIT_S)


class Child:
    """One child of a nursery, from its fork to its end. Made by `Nursery.child`."""

    def __init__(self, nursery: Nursery, scratch: str, limits: Limits) -> None:
        self._nursery, self._scratch, self._limits = nursery, scratch, limits
        self._pid = 0
        self._status: int | None = None
        self._ended = False
        self._message: dict[str, Any] = {}
        self._tail, self._output_text = wire.Tail(), ""
        self._stage = ""

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
        if self._ended:
            raise crash(self._status, self._output_text, self._stage)
        order = wire.pack({"task": task, "payload": payload})
        self._deadline = Deadline(self._limits.time_s)
        try:
            answered = wire.follow(
                self._channel, self._tick, self._hear, outgoing=order, output=(self._output, self._tail)
            )
        except (ValueError, TypeError) as fault:
            self.end()
            raise CrashError(f"the process sent an answer that cannot be read: {fault}") from fault
        except BaseException:
            self.end()
            raise
        if not answered:
            self.end()
            raise crash(self._status, self._output_text, self._stage)
        if "fault" in self._message:
            raise revive(self._message["fault"])
        return self._message.pop("answer")

    def begin(self) -> None:
        """Asks the nursery for the child.

        Raises:
            CrashError: the nursery has died.
        """
        self._channel, theirs = socket.socketpair()
        self._output, written = socket.socketpair()
        with theirs, written:
            request = {"scratch": self._scratch, "path": [str(Path(entry).resolve()) for entry in sys.path]}
            self._nursery.tell(request, [theirs.fileno(), written.fileno()])
        for ours in (self._channel, self._output):
            ours.setblocking(False)
        try:
            self._pid = self._nursery.hear(START_LIMIT_S)["pid"]
        except (EOFError, TimeoutError) as fault:
            message = "the sandbox process died before it could start the program"
            raise CrashError(message, next="run it again") from fault
        self._memory = MemoryWatch(self._pid, self._limits.memory_bytes)

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


def _nursery_environment() -> dict[str, str]:
    kept = environment()
    paths = [str(PACKAGE.parent), *filter(None, [kept.get("PYTHONPATH")])]
    home = {"HOME": os.environ["HOME"]} if "HOME" in os.environ else {}
    return kept | home | {"PYTHONPATH": os.pathsep.join(paths)}
