"""The warm process: `python -m kernelwright.sandbox.fork_server CONTROL_FD MODULE...`.

It imports the modules (torch among them), runs no parallel operator, and forks a child for each request. It is never
confined itself and never sees a payload: the child talks to the asker directly. When the asker dies, everything ends.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import os
import select
import shutil
import signal
import socket
import sys
from typing import Any, NoReturn

from kernelwright.core import progress
from kernelwright.sandbox import channel as wire
from kernelwright.sandbox.exceptions import serialize_error
from kernelwright.sandbox.isolation import Isolation, isolate
from kernelwright.sandbox.limits import kill_process_tree, process_tree
from kernelwright.sandbox.process_limits import become_subreaper, restrict_process

PARENT_POLL_S = 1.0


def main(arguments: list[str]) -> None:
    control = socket.socket(fileno=int(arguments[0]))
    asker = os.getppid()
    become_subreaper()
    wakeup, told = socket.socketpair()
    for end in (wakeup, told):
        end.setblocking(False)
    signal.set_wakeup_fd(told.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    for module in arguments[1:]:
        importlib.import_module(module)
    wire.send(control, {"ready": True})
    serve(control, wakeup, asker)


def serve(control: socket.socket, wakeup: socket.socket, client_pid: int) -> None:
    """Forks and reaps until the asker is gone."""
    child, scratch, requests = 0, "", wire.RequestReader()
    while True:
        ready, _, _ = select.select([control, wakeup], [], [], PARENT_POLL_S)
        if wakeup in ready:
            with contextlib.suppress(BlockingIOError):
                wakeup.recv(4096)
        if child and (status := reap(child)) is not None:
            kill_descendants()
            child = 0
            wire.send(control, {"exit": status})
        try:
            asked = requests.read(control) if control in ready else []
        except EOFError:
            shut_down(child, scratch)
        # For a copy of the asker's socket that outlives it in some other fork.
        if os.getppid() != client_pid:
            shut_down(child, scratch)
        for request, descriptors in asked:
            if "scratch" in request:
                scratch = request["scratch"]
                child = fork(request, descriptors)
                wire.send(control, {"pid": child})
            elif child and request["kill"] == child:
                kill_process_tree(child)


def fork(request: dict[str, Any], descriptors: list[int]) -> int:
    """A child for the request; returns its process id, in the nursery only."""
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        run_child(request, descriptors, parent)
    for number in descriptors:
        os.close(number)
    return pid


def run_child(request: dict[str, Any], descriptors: list[int], parent_pid: int) -> NoReturn:
    """The child's whole life: confine itself, answer tasks, end without any exit handler."""
    own = os.getpid()
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        channel, output = descriptors
        number = restrict_process(request["scratch"], channel, output, parent_pid)
        sys.path[:] = request["path"]
        faulthandler.enable()
        sock = socket.socket(fileno=number)
        if cage := request["cage"]:
            wire.send(sock, {"protections": isolate(Isolation(**cage), request["scratch"], parent_pid)})
        serve_tasks(sock, own)
    except BaseException as fault:
        sys.stderr.write(f"{type(fault).__name__}: {fault}\n")
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(0)


def serve_tasks(sock: socket.socket, own_pid: int) -> None:
    """Answers one task after the other until the asker ends it."""
    progress.set_listener(lambda what, limit_s: wire.send(sock, {"stage": what, "limit_s": limit_s}))
    while True:
        order = wire.receive(sock)
        answer = run_task(order["task"], order["payload"])
        del order  # hundreds of megabytes, perhaps
        # A person's program may fork and come back twice: only the child itself answers.
        if os.getpid() != own_pid:
            return
        sock.sendall(answer)


def run_task(task: str, payload: Any) -> bytearray:
    """The packed answer of `module:function`, or its fault."""
    try:
        module, _, function = task.partition(":")
        return wire.pack({"answer": getattr(importlib.import_module(module), function)(payload)})
    except BaseException as fault:
        return wire.pack({"fault": serialize_error(fault, user_code=True)})


def reap(child: int) -> int | None:
    """The exit status of the child if it has ended; orphans that ended are reaped on the way."""
    found = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if pid == 0:
            return found
        if pid == child:
            found = status


def kill_descendants() -> None:
    """Kills whatever descendants are left; repeated, because a fork may slip through between look and kill."""
    for _ in range(100):
        left = [process.pid for process in process_tree(os.getpid())[1:]]
        if not left:
            return
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        reap(0)


def shut_down(child: int, scratch_dir: str) -> NoReturn:
    if child:
        kill_process_tree(child)
    kill_descendants()
    if scratch_dir:
        shutil.rmtree(scratch_dir, ignore_errors=True)
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
