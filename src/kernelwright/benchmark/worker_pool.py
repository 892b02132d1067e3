"""Worker processes that run tasks in parallel. A worker that dies is replaced and its task is retried; a worker that
verifies candidates keeps a fork server for them."""

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
        with contextlib.suppress(BrokenPipeError):  # the worker died; `recv` raises EOFError next
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
    """Yield the index of each task and its result, or the error it raised, in order of completion.

    Args:
        work: a module-level function. Each worker is a new process that keeps its loaded modules between tasks.
    Raises:
        UsageError: fewer than one worker.
    """
    if workers < 1:
        raise UsageError(f"{workers} workers: at least 1 is needed", next="--workers 1")
    waiting, attempts = deque(range(len(tasks))), [0] * len(tasks)
    pool: list[_Worker] = []
    try:
        while waiting or pool:
            while waiting and len(pool) < workers:
                pool.append(_Worker(work))
                _submit_next(pool[-1], waiting, tasks)
            ready = connection.wait([one.pipe for one in pool])
            for worker in [one for one in pool if one.pipe in ready]:
                index = worker.task
                try:
                    result = worker.pipe.recv()
                except (EOFError, OSError):
                    pool.remove(worker)
                    worker.shut_down()
                    attempts[index] += 1
                    if attempts[index] < MAX_ATTEMPTS:
                        waiting.appendleft(index)
                        continue
                    result = CrashError(f"the worker process died in {MAX_ATTEMPTS} attempts at this task")
                else:
                    if waiting:
                        _submit_next(worker, waiting, tasks)
                    else:
                        pool.remove(worker)
                        worker.shut_down()
                yield index, result
    finally:
        for worker in pool:
            worker.shut_down()


@functools.cache
def shared_fork_server() -> ForkServer:
    """The fork server of this process, which starts a child for a candidate in milliseconds."""
    fork_server = ForkServer(PRELOAD_MODULES)
    atexit.register(fork_server.close)
    return fork_server


def _submit_next(worker: _Worker, waiting: deque[int], tasks: Sequence[Any]) -> None:
    index = waiting.popleft()
    worker.submit(index, tasks[index])


def _worker_main(pipe: connection.Connection, work: Callable[[Any], Any], parent: int) -> None:
    """Run tasks from the pipe until it closes or the parent dies."""
    die_with_parent(parent)
    while True:
        try:
            task = pipe.recv()
        except EOFError:
            return
        try:
            result = work(task)
        except KernelwrightError as error:
            result = error
        except Exception as error:  # one failed task must not end the worker
            result = InternalError(f"{type(error).__name__}: {error}")
        with contextlib.suppress(BrokenPipeError):
            pipe.send(result)
