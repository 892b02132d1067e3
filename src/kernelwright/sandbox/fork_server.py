"""The fork server: `python -m kernelwright.sandbox.fork_server CONTROL_FD MODULE...`.

It imports the modules (torch among them), runs no parallel operator, and forks a child for each request. It is not
restricted itself and never receives a payload: the child talks to the client directly. When the client dies, the server
and all its descendants end.
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
    """Run the server on the control socket, after importing the modules to preload."""
    control = socket.socket(fileno=int(arguments[0]))
    client_pid = os.getppid()
    become_subreaper()
    wakeup, signal_end = socket.socketpair()
    for end in (wakeup, signal_end):
        end.setblocking(False)
    signal.set_wakeup_fd(signal_end.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    for module in arguments[1:]:
        importlib.import_module(module)
    wire.send(control, {"ready": True})
    serve(control, wakeup, client_pid)


def serve(control: socket.socket, wakeup: socket.socket, client_pid: int) -> None:
    """Fork and reap children until the client is gone."""
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
            received = requests.read(control) if control in ready else []
        except EOFError:
            shut_down(child, scratch)
        # A fork of the client may keep a copy of its socket open, so end of file alone does not suffice.
        if os.getppid() != client_pid:
            shut_down(child, scratch)
        for request, descriptors in received:
            if "scratch" in request:
                scratch = request["scratch"]
                child = fork(request, descriptors)
                wire.send(control, {"pid": child})
            elif child and request["kill"] == child:
                kill_process_tree(child)


def fork(request: dict[str, Any], descriptors: list[int]) -> int:
    """Fork a child for the request; returns its process id, in the server only."""
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        run_child(request, descriptors, parent)
    for number in descriptors:
        os.close(number)
    return pid


def run_child(request: dict[str, Any], descriptors: list[int], parent_pid: int) -> NoReturn:
    """Run the child: restrict the process, serve tasks, exit without exit handlers."""
    own = os.getpid()
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        channel, output = descriptors
        number = restrict_process(request["scratch"], channel, output, parent_pid)
        sys.path[:] = request["path"]
        faulthandler.enable()
        sock = socket.socket(fileno=number)
        if isolation := request["isolation"]:
            wire.send(sock, {"protections": isolate(Isolation(**isolation), request["scratch"], parent_pid)})
        serve_tasks(sock, own)
    except BaseException as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(0)


def serve_tasks(sock: socket.socket, own_pid: int) -> None:
    """Run one task after the other until the client ends the process."""
    progress.set_listener(lambda what, limit_s: wire.send(sock, {"stage": what, "limit_s": limit_s}))
    while True:
        request = wire.receive(sock)
        reply = run_task(request["task"], request["payload"])
        del request  # may hold hundreds of megabytes
        # The user's program may fork and return twice: only the child itself replies.
        if os.getpid() != own_pid:
            return
        sock.sendall(reply)


def run_task(task: str, payload: Any) -> bytearray:
    """Call `module:function` and return the packed result or exception."""
    try:
        module, _, function = task.partition(":")
        return wire.pack({"answer": getattr(importlib.import_module(module), function)(payload)})
    except BaseException as error:
        return wire.pack({"fault": serialize_error(error, user_code=True)})


def reap(child: int) -> int | None:
    """The exit status of the child if it has ended; also reaps orphans that have ended."""
    exit_status = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return exit_status
        if pid == 0:
            return exit_status
        if pid == child:
            exit_status = status


def kill_descendants() -> None:
    """Kill all remaining descendants; repeated, because a process may fork between the listing and the kill."""
    for _ in range(100):
        left = [process.pid for process in process_tree(os.getpid())[1:]]
        if not left:
            return
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        reap(0)


def shut_down(child: int, scratch_dir: str) -> NoReturn:
    """Kill the child and all descendants, delete the scratch folder and exit."""
    if child:
        kill_process_tree(child)
    kill_descendants()
    if scratch_dir:
        shutil.rmtree(scratch_dir, ignore_errors=True)
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
