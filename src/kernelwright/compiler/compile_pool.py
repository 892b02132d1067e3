"""Compiles generated modules in worker processes, as many as there are cores, into the compile caches.

A worker needs no GPU: Triton's compiler only has to know the target. What fails here fails again, and is reported,
where the module is loaded.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import Any, NamedTuple

from kernelwright.sandbox.process_limits import die_with_parent

MAX_PROCESSES = 16
POOL_NICENESS = 5
"""Of the processes that compile while another one launches and times kernels."""


class CompileTask(NamedTuple):
    """A generated module with one region.

    Attributes:
        text: the source of the module.
        name: the region's function in it.
        dtypes: of the function's arguments.
        shapes: of the arguments of a function that computes with them before it launches kernels; else empty.
        lines: name and line of the kernels, if they are compiled for the file where they stand there.
    """

    text: str
    name: str
    dtypes: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...] = ()
    lines: tuple[tuple[str, int], ...] = ()


class CompilePool:
    """Worker processes, started in the background; they end with this process.

    Args:
        capability: of the GPU that Triton compiles for; None for C++.
    """

    def __init__(self, capability: tuple[int, int] | None) -> None:
        self._capability = capability
        if capability:
            _share_triton_cache()
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["kernelwright.compiler.kernel_source", "torch", *["triton"] * bool(capability)])
        count = min(len(os.sched_getaffinity(0)), MAX_PROCESSES)
        self._executor = ProcessPoolExecutor(count, context, _start_worker)
        self._futures: dict[CompileTask, Future[None]] = {}
        with _without_main_module():
            self._executor.submit(os.getpid)  # starts the server

    def __enter__(self) -> CompilePool:
        return self

    def __exit__(self, *_: object) -> None:
        self._executor.shutdown(wait=False, cancel_futures=True)

    def submit(self, task: CompileTask) -> None:
        """Compile a module, once."""
        if task not in self._futures or self._futures[task].cancelled():
            # if the pool is closed or broken, the module is compiled where it is loaded
            with _without_main_module(), suppress(RuntimeError):
                self._futures[task] = self._executor.submit(compile_module, task, self._capability)

    def cancel(self) -> None:
        """Drop what no process has begun to compile."""
        for future in self._futures.values():
            future.cancel()

    def is_done(self, task: CompileTask) -> bool:
        """Whether a module is compiled, or is not going to be."""
        return task not in self._futures or self._futures[task].done()

    def wait(self, tasks: Sequence[CompileTask], limit_s: float) -> None:
        """Wait until modules are compiled, or the time is over."""
        timeout_s = None if math.isinf(limit_s) else max(limit_s, 0.0)
        wait([future for task in tasks if (future := self._futures.get(task))], timeout_s)


def _share_triton_cache() -> None:
    """Fix the folder of Triton's cache: torch.compile would move that of this process, away from the workers'."""
    from triton import knobs

    os.environ.setdefault("TRITON_CACHE_DIR", knobs.cache.dir)


@contextmanager
def _without_main_module() -> Iterator[None]:
    """Keep new workers from running the user's main module, which multiprocessing does for tasks defined in it."""
    main = vars(sys.modules["__main__"])
    saved = {name: main[name] for name in ("__file__", "__spec__") if name in main}
    main.pop("__file__", None)
    main["__spec__"] = None
    try:
        yield
    finally:
        main.update(saved)


def _start_worker() -> None:
    """Leave the cores to the process that times kernels. End when the fork server does, or this package's process: the
    server waits for its workers to end."""
    os.nice(POOL_NICENESS)
    die_with_parent(os.getppid())
    threading.Thread(target=_end_with_owner, daemon=True).start()


def _end_with_owner() -> None:
    if (owner := multiprocessing.parent_process()) is not None:
        owner.join()
        os._exit(1)


def compile_module(task: CompileTask, capability: tuple[int, int] | None) -> None:
    """Load a module, and compile its Triton kernels for a GPU as a first call would."""
    from kernelwright.compiler.kernel_source import load
    from kernelwright.compiler.library.products import GEMM

    if capability is None:
        load(task.text)
        return
    import torch

    _compile_without_launching(capability)
    module = load(task.text, lines=dict(task.lines))
    vars(module).update({"num_sms_of": lambda device: sys.maxsize, GEMM: _empty_product})
    shapes = task.shapes or ((4,),) * len(task.dtypes)
    arguments = [
        torch.empty(shape, dtype=getattr(torch, dtype)) for shape, dtype in zip(shapes, task.dtypes, strict=True)
    ]
    getattr(module, task.name)(*arguments)


def _empty_product(a: Any, b: Any, **_: Any) -> Any:
    """In place of the library's product, whose kernel is compiled by its first call."""
    return a.new_empty((*a.shape[:-1], b.shape[-1]))


def _compile_without_launching(capability: tuple[int, int]) -> None:
    """Make Triton compile for a GPU that this process does not use, and launch nothing."""
    from triton.backends.compiler import GPUTarget
    from triton.runtime import JITFunction, driver

    major, minor = capability
    target = GPUTarget("cuda", 10 * major + minor, 32)
    stub: Any = SimpleNamespace(
        get_current_target=lambda: target, get_current_device=lambda: 0, get_current_stream=lambda device: 0
    )
    driver.set_active(stub)
    run_on_device: Any = JITFunction.run
    if not hasattr(run_on_device, "compiles_only"):

        def compile_only(function: Any, *args: Any, warmup: bool = False, **options: Any) -> None:
            run_on_device(function, *args, warmup=True, **options)

        vars(compile_only)["compiles_only"] = True
        setattr(JITFunction, "run", compile_only)  # noqa: B010 -- its type forbids an assignment
