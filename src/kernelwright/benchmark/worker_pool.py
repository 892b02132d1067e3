"""Processes that do tasks beside each other. One that dies is replaced, and its task done again by another; one that
judges keeps a nursery warm for what it judges."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import connection, get_context
from typing import Any, TypeVar

from kernelwright.core.errors import CrashError, InternalError, KernelwrightError, UsageError
from kernelwright.sandbox import ForkServer
from kernelwright.sandbox.process_limits import die_with_parent
from kernelwright.verification.transport.runners import PRELOAD_MODULES

MAX_ATTEMPTS = 3
SHUTDOWN_TIMEOUT_S = 5.0
T = TypeVar("T")
R = TypeVar("R")


class _Worker:
    def __init__(self, work: Callable[[Any], Any]) -> None:
        context = get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self._process = context.Process(target=_worker_main, args=(theirs, work, os.getpid()))
        self._process.start()
        theirs.close()
        self.task = -1

    def submit(self, index: int, payload: Any) -> None:
        self.task = index
        with contextlib.suppress(BrokenPipeError):  # it died before it had anything to do: its pipe says so next
            self.pipe.send(payload)

    def shut_down(self) -> None:
        self.pipe.close()
        self._process.join(SHUTDOWN_TIMEOUT_S)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def map_unordered(
    workers: int, work: Callable[[T], R], tasks: Sequence[T]
) -> Iterator[tuple[int, R | KernelwrightError]]:
    """What `work` makes of each task, with the task's index, as they are done; or the error that it raised.

    Args:
        work: a function at the top of a module; each worker is a fresh process that keeps what it has loaded.
    Raises:
        UsageError: no workers.
    """
    if workers < 1:
        raise UsageError(f"{workers} workers do nothing", next="--workers 1")
    waiting, tries = deque(range(len(tasks))), [0] * len(tasks)
    crew: list[_Worker] = []
    try:
        while waiting or crew:
            while waiting and len(crew) < workers:
                crew.append(_Worker(work))
                _submit_next(crew[-1], waiting, tasks)
            ready = connection.wait([one.pipe for one in crew])
            for worker in [one for one in crew if one.pipe in ready]:
                index = worker.task
                try:
                    answer = worker.pipe.recv()
                except (EOFError, OSError):
                    crew.remove(worker)
                    worker.shut_down()
                    tries[index] += 1
                    if tries[index] < MAX_ATTEMPTS:
                        waiting.appendleft(index)
                        continue
                    answer = CrashError(f"the process that did this died {MAX_ATTEMPTS} times")
                else:
                    if waiting:
                        _submit_next(worker, waiting, tasks)
                    else:
                        crew.remove(worker)
                        worker.shut_down()
                yield index, answer
    finally:
        for worker in crew:
            worker.shut_down()


@functools.cache
def shared_fork_server() -> ForkServer:
    """That of this process: its child for each candidate is there in milliseconds."""
    nursery = ForkServer(PRELOAD_MODULES)
    atexit.register(nursery.close)
    return nursery


def _submit_next(worker: _Worker, waiting: deque[int], tasks: Sequence[Any]) -> None:
    index = waiting.popleft()
    worker.submit(index, tasks[index])


def _worker_main(pipe: connection.Connection, work: Callable[[Any], Any], parent: int) -> None:
    """A worker's whole life: it ends with its pipe, and with whoever asked."""
    die_with_parent(parent)
    while True:
        try:
            task = pipe.recv()
        except EOFError:
            return
        try:
            answer = work(task)
        except KernelwrightError as fault:
            answer = fault
        except Exception as fault:  # of whatever kind: the others' tasks are none the worse for it
            answer = InternalError(f"{type(fault).__name__}: {fault}")
        with contextlib.suppress(BrokenPipeError):
            pipe.send(answer)
