"""Compile the kernels of a suite in parallel processes; tuning then finds them in the caches on disk."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from kernelwright.compiler.backends import Backend, backend_for
from kernelwright.compiler.kernel_source import RegionKernel
from kernelwright.compiler.planning import plan_problem
from kernelwright.compiler.program_suite import load_programs
from kernelwright.compiler.reference import bind_placeholders, build_reference, record_region_inputs
from kernelwright.compiler.regions.call import CallRegion
from kernelwright.compiler.regions.contraction import AnyRegion
from kernelwright.core.progress import report_stage
from kernelwright.measure.clock import synchronize, wall_s
from kernelwright.problems import Problem
from kernelwright.sandbox.limits import kill_process_tree
from kernelwright.sandbox.process_limits import die_with_parent

MAX_PROCESSES = 14
"""Each process has a CUDA context and the inputs of a program; about one for each core of an H200's host."""
TIME_LIMIT_S = {"cuda": 240.0, "cpu": 3600.0}
"""Kernels that are not compiled by then are compiled during tuning."""
POLL_S = 0.5
OOM_RETRIES, OOM_WAIT_S = 20, 3.0
"""For a process that runs out of device memory while the others hold it."""


def precompile_suite(folder: str, names: Sequence[str], device: str) -> None:
    """Compile the named programs of a suite in a few worker processes.

    A worker that dies is replaced and its program skipped. Failures are ignored: they occur again, and are reported,
    when the program is tuned.
    """
    context = multiprocessing.get_context("spawn")
    queue, num_queued = context.SimpleQueue(), context.Value("i", len(names))
    count = min(len(names), MAX_PROCESSES, len(os.sched_getaffinity(0)))
    for name in [*names, *[None] * count]:
        queue.put(name)

    def start() -> Any:
        process = context.Process(
            target=_run_worker, args=(folder, device, queue, num_queued, os.getpid()), daemon=True
        )
        process.start()
        return process

    workers, num_restarts, deadline = [start() for _ in range(count)], len(names), wall_s() + TIME_LIMIT_S[device]
    while workers and wall_s() < deadline:
        report_stage(f"compiling in {count} processes: {num_queued.value} of {len(names)} programs queued")
        workers[0].join(POLL_S)
        num_lost = sum(process.exitcode not in (None, 0) for process in workers)
        workers = [process for process in workers if process.exitcode is None]
        workers += [start() for _ in range(min(num_lost, num_restarts, num_queued.value))]
        num_restarts -= num_lost
    for process in workers:
        kill_process_tree(process.pid)
        process.join()


def _run_worker(folder: str, device: str, queue: Any, num_queued: Any, parent: int) -> None:
    """A worker: compiles programs until the queue is empty, its CUDA context is lost, or its parent process is dead."""
    import torch._inductor.config as inductor

    die_with_parent(parent)
    inductor.compile_threads = 1
    for fd in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), fd)
    problems = {problem.name: problem for problem in load_programs(folder, device)}
    for name in iter(queue.get, None):
        with num_queued.get_lock():
            num_queued.value -= 1
        precompile_problem(problems[name], device)
        release_memory(device)
        if not is_device_alive(device):
            os._exit(1)


def precompile_problem(problem: Problem, device: str) -> None:
    """Compile every config of every region, and the regions and the whole program with torch.compile."""
    for precompile in (_precompile_regions, _precompile_program):
        for _ in range(OOM_RETRIES):
            try:
                with _ignore_failures(), torch.no_grad():
                    precompile(problem, device)
                break
            except torch.OutOfMemoryError:  # other workers hold the memory: a retry finds finished kernels in the cache
                release_memory(device)
                threading.Event().wait(OOM_WAIT_S)


@contextmanager
def _ignore_failures() -> Iterator[None]:
    """Suppress every exception except out of memory."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except Exception:  # user code and compilers may raise anything; tuning reports it
        pass


def _precompile_program(problem: Problem, device: str) -> None:
    args, kwargs = problem.inputs(device, 0)
    _compile(problem.program_on(device), args, kwargs)


def _precompile_regions(problem: Problem, device: str) -> None:
    planned, backend = plan_problem(problem, device), backend_for(device)
    args, kwargs = problem.inputs(device, 0)
    values = bind_placeholders(planned.captured, problem.program_on(device), args, kwargs)
    for part, inputs in zip(
        planned.regions, record_region_inputs(planned.captured, planned.regions, values), strict=True
    ):
        for config in backend.generate_configs(part.region):
            with _ignore_failures():
                _build(backend, part.region, config, inputs, device)
        if isinstance(part.region, CallRegion) and part.region.is_unrolled_by_compile:
            continue
        with _ignore_failures():
            _compile(build_reference(planned.captured, part), inputs, {})


def _build(backend: Backend, region: AnyRegion, config: Any, inputs: Sequence[torch.Tensor], device: str) -> None:
    program = getattr(backend.load(backend.emit_module([RegionKernel(region, config)])), region.name)
    if device == "cuda":  # Triton compiles at the first call
        program(*inputs)
        synchronize(device)


def _compile(program: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    torch._dynamo.reset()
    torch.compile(program, dynamic=False)(*args, **kwargs)


def release_memory(device: str) -> None:
    """Reset Dynamo and free the cached device memory of a program."""
    torch._dynamo.reset()
    if device == "cuda" and is_device_alive(device):
        torch.cuda.empty_cache()


def is_device_alive(device: str) -> bool:
    """Whether the device can still be synchronised; some CUDA errors corrupt the context of the process."""
    try:
        synchronize(device)
    except RuntimeError:
        return False
    return True
