"""The client side of the fork server."""

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
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

from kernelwright.core.errors import InternalError, SetupError
from kernelwright.sandbox import channel as wire
from kernelwright.sandbox.child import START_TIMEOUT_S, TERMINATE_TIMEOUT_S, Child
from kernelwright.sandbox.exceptions import PACKAGE_DIR
from kernelwright.sandbox.isolation import Isolation
from kernelwright.sandbox.limits import Limits, kill_process_tree
from kernelwright.sandbox.process_limits import filter_environment


class ForkServer:
    """A process that has imported torch and forks a new child for every run in about 16 ms.

    Used as a context manager; one child at a time (other threads wait). It starts on entry or at the first run, and is
    restarted after it has died.

    Args:
        preload: modules that the server imports, so that children need not. They must not run a parallel operator or
            touch CUDA: neither survives a fork.
        compile_cache: the folder that torch.compile and Triton read and write in the children; by default a private
            one of each candidate. Its entries hold absolute paths, so that a copy elsewhere is of no use. Only for
            candidates that this process wrote: it may load what they leave there.
    """

    def __init__(self, preload: tuple[str, ...] = ("torch",), compile_cache: Path | None = None) -> None:
        self._preload, self._compile_cache = preload, compile_cache
        self._lock = threading.RLock()
        self._process: subprocess.Popen | None = None
        self._control: socket.socket | None = None
        self._errors: IO[bytes] | None = None
        self._ready = self._busy = False

    def __enter__(self) -> ForkServer:
        self._start()  # the imports take over a second: let them run while the caller does something else
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, task: str, payload: dict[str, Any], limits: Limits) -> Any:
        """Call `module:function` with the payload in a new child: `fork_child` with a single call."""
        with self.fork_child(limits) as child:
            return child.call(task, payload)

    @contextlib.contextmanager
    def fork_child(self, limits: Limits, isolation: Isolation | None = None) -> Iterator[Child]:
        """A new child for several calls; it and its descendants are killed when the block ends.

        Args:
            isolation: for untrusted code: the paths that it may read and write.
        Raises:
            SetupError: the server cannot be started or dies; not the fault of the code that is run.
        """
        with self._lock:
            if self._busy:
                raise InternalError("a fork server runs one child at a time: start a second ForkServer")
            self._wait_until_ready()
            scratch = tempfile.mkdtemp(prefix="kernelwright-")
            if isolation and self._compile_cache:
                isolation = replace(isolation, compile_cache=str(self._compile_cache))
            child, self._busy = Child(self, scratch, limits, isolation), True
            try:
                child.launch()
                yield child
            finally:
                child.terminate()
                self._busy = False
                shutil.rmtree(scratch, ignore_errors=True)

    @property
    def pid(self) -> int:
        """Process id of the server; 0 if it is not running."""
        return self._process.pid if self._process else 0

    def close(self) -> None:
        """End the server and all its descendants."""
        control, process, errors = self._control, self._process, self._errors
        self._control = self._process = self._errors = None
        self._ready = False
        if control:
            control.close()  # at end of file the server kills its descendants and exits
        if process:
            try:
                process.wait(TERMINATE_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                kill_process_tree(process.pid)
                process.wait()
        if errors:
            errors.close()

    def _start(self) -> None:
        """Start the server if it is not running, without waiting for it."""
        if self._process and self._process.poll() is None:
            return
        self.close()
        self._control, theirs = socket.socketpair()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "kernelwright.sandbox.fork_server", str(theirs.fileno()), *self._preload],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._errors,
                env=_server_environment(),
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C is handled here: the server must stay alive to clean up
            )

    def _wait_until_ready(self) -> None:
        """Wait until the server is ready for requests."""
        self._start()
        if self._ready:
            return
        try:
            self._ready = self.receive_reply(START_TIMEOUT_S)["ready"]
        except (EOFError, TimeoutError) as error:
            assert self._errors
            self._errors.seek(0)
            tail = self._errors.read()[-2000:].decode(errors="replace").strip()
            raise SetupError(f"the sandbox process did not start\n{tail}", next="run it again") from error
        finally:
            if not self._ready:
                self.close()

    def send_request(self, message: dict[str, Any], descriptors: list[int] | None = None) -> None:
        """Send one request. If the server is dead, waiting for its reply reports that."""
        if self._control is None:
            return
        with contextlib.suppress(OSError):
            self._control.settimeout(TERMINATE_TIMEOUT_S)
            counted = message | {"descriptors": len(descriptors or [])}
            socket.send_fds(self._control, [wire.pack(counted)], descriptors or [])

    def receive_reply(self, timeout_s: float) -> dict[str, Any]:
        """Wait for the server's next reply.

        Raises:
            EOFError: the server is dead.
            TimeoutError: no reply in time.
        """
        if self._control is None:
            raise EOFError
        self._control.settimeout(timeout_s)
        return wire.receive(self._control)

    def poll_reply(self) -> dict[str, Any] | None:
        """The server's reply if one has arrived, else None; replies are sent whole and are smaller than a packet.

        Raises:
            EOFError: the server is dead.
        """
        if self._control is None:
            raise EOFError
        self._control.setblocking(False)
        try:
            peeked = self._control.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return None
        except OSError as error:
            raise EOFError from error
        if not peeked:
            raise EOFError
        return self.receive_reply(TERMINATE_TIMEOUT_S)


def _server_environment() -> dict[str, str]:
    kept = filter_environment()
    paths = [str(PACKAGE_DIR.parent), *filter(None, [kept.get("PYTHONPATH")])]
    home = {"HOME": os.environ["HOME"]} if "HOME" in os.environ else {}
    return kept | home | {"PYTHONPATH": os.pathsep.join(paths)}
