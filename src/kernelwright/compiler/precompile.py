"""Compiles what a suite will need, in many processes at once; timing finds it in the caches on disk."""

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
from kernelwright.compiler.pipeline import plan_problem
from kernelwright.compiler.program_suite import load_programs
from kernelwright.compiler.reference import bind_placeholders, build_reference, record_region_inputs
from kernelwright.compiler.regions.region import Region
from kernelwright.core.progress import report_stage
from kernelwright.measure.clock import synchronize, wall_s
from kernelwright.problems import Problem
from kernelwright.sandbox.limits import kill_process_tree
from kernelwright.sandbox.process_limits import die_with_parent

MAX_PROCESSES = 14
"""With the CUDA context and the inputs of a program each; about one for each core of an H200's host."""
TIME_LIMIT_S = {"cuda": 240.0, "cpu": 3600.0}
"""What is not compiled by then is compiled while it is timed."""
POLL_S = 0.5
OOM_RETRIES, OOM_WAIT_S = 20, 3.0
"""For what finds no memory left."""


def precompile_suite(folder: str, names: Sequence[str], device: str) -> None:
    """Compiles the named programs of a suite, one after another in each of a few processes.

    A process that dies is replaced and its program skipped; whatever fails here fails again, and is said, where it is
    timed.
    """
    context = multiprocessing.get_context("spawn")
    waiting, left = context.SimpleQueue(), context.Value("i", len(names))
    count = min(len(names), MAX_PROCESSES, len(os.sched_getaffinity(0)))
    for name in [*names, *[None] * count]:
        waiting.put(name)

    def start() -> Any:
        process = context.Process(target=_run_worker, args=(folder, device, waiting, left, os.getpid()), daemon=True)
        process.start()
        return process

    crew, spare, until = [start() for _ in range(count)], len(names), wall_s() + TIME_LIMIT_S[device]
    while crew and wall_s() < until:
        report_stage(f"compiling in {count} processes: {left.value} of {len(names)} programs wait")
        crew[0].join(POLL_S)
        lost = sum(process.exitcode not in (None, 0) for process in crew)
        crew = [process for process in crew if process.exitcode is None]
        crew += [start() for _ in range(min(lost, spare, left.value))]
        spare -= lost
    for process in crew:
        kill_process_tree(process.pid)
        process.join()


def _run_worker(folder: str, device: str, waiting: Any, left: Any, parent: int) -> None:
    """One process: takes names until there are no more, its CUDA context is lost, or whoever started it is dead."""
    import torch._inductor.config as inductor

    die_with_parent(parent)
    inductor.compile_threads = 1
    for number in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), number)
    known = {problem.name: problem for problem in load_programs(folder, device)}
    for name in iter(waiting.get, None):
        with left.get_lock():
            left.value -= 1
        precompile_problem(known[name], device)
        release_memory(device)
        if not is_device_alive(device):
            os._exit(1)


def precompile_problem(problem: Problem, device: str) -> None:
    """Builds every choice of every region, and has torch.compile read the regions and the program."""
    for part in (_precompile_regions, _precompile_program):
        for _ in range(OOM_RETRIES):
            try:
                with _ignore_failures(), torch.no_grad():
                    part(problem, device)
                break
            except torch.OutOfMemoryError:  # the other processes have it: what was compiled is kept
                release_memory(device)
                threading.Event().wait(OOM_WAIT_S)


@contextmanager
def _ignore_failures() -> Iterator[None]:
    """Goes on behind every fault but a want of memory."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except Exception:  # a person's program or a compiler may raise anything; where it is timed it is said
        pass


def _precompile_program(problem: Problem, device: str) -> None:
    args, kwargs = problem.inputs(device, 0)
    _compile(problem.program_on(device), args, kwargs)


def _precompile_regions(problem: Problem, device: str) -> None:
    planned, generator = plan_problem(problem, device), backend_for(device)
    args, kwargs = problem.inputs(device, 0)
    values = bind_placeholders(planned.captured, problem.program_on(device), args, kwargs)
    for part, given in zip(
        planned.regions, record_region_inputs(planned.captured, planned.regions, values), strict=True
    ):
        for choice in generator.generate_configs(part.region):
            with _ignore_failures():
                _build(generator, part.region, choice, given, device)
        with _ignore_failures():
            _compile(build_reference(planned.captured, part), given, {})


def _build(generator: Backend, region: Region, choice: Any, given: Sequence[torch.Tensor], device: str) -> None:
    program = getattr(generator.load(generator.emit_module([RegionKernel(region, choice)])), region.name)
    if device == "cuda":  # Triton compiles at the first call
        program(*given)
        synchronize(device)


def _compile(program: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    torch._dynamo.reset()
    torch.compile(program, dynamic=False)(*args, **kwargs)


def release_memory(device: str) -> None:
    """Gives back what a program held."""
    torch._dynamo.reset()
    if device == "cuda" and is_device_alive(device):
        torch.cuda.empty_cache()


def is_device_alive(device: str) -> bool:
    """Whether the device still answers: after some CUDA errors a process can only end."""
    try:
        synchronize(device)
    except RuntimeError:
        return False
    return True
