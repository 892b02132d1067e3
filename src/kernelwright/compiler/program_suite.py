"""A suite of programs, each optimised and timed against eager, torch.compile and a copy of the same bytes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from kernelwright.benchmark.variants import make_baseline
from kernelwright.compiler.backends import backend_for
from kernelwright.compiler.in_memory import optimize_problem
from kernelwright.compiler.selection import ProgramSelector
from kernelwright.compiler.tuning import Tuner
from kernelwright.core.errors import KernelwrightError, ProblemError
from kernelwright.core.machine import Machine
from kernelwright.core.optimization import TORCH_COMPILE, WHOLE_PROGRAM_PREFIX, Optimization, ProgramSuiteRow
from kernelwright.core.progress import report_stage
from kernelwright.machines.floor import floor, last_cache_bytes
from kernelwright.measure.paired import time_variants
from kernelwright.problems import Problem, load_problem
from kernelwright.problems.importing import import_file
from kernelwright.problems.problem import Args
from kernelwright.work import count_work, first_read_bytes

OURS, COPY, EAGER = "kernelwright", "copy", "eager"
BUDGET_S = 2.0
MAX_REASON_CHARS = 400


def load_programs(folder: str, device: str) -> Iterator[Problem]:
    """Load the programs of a folder.

    A file is either a KernelBench problem file, or defines functions `NAME` with `NAME_inputs(scale)`; `GPU_SCALE` maps
    each name to its scale on a GPU (1 on a CPU).
    """
    for path in sorted(Path(folder).glob("*.py")):
        module = import_file(path, ProblemError)
        if not hasattr(module, "GPU_SCALE"):
            yield load_problem(str(path))
            continue
        for name, scale in module.GPU_SCALE.items():
            make = functools.partial(getattr(module, f"{name}_inputs"), scale if device == "cuda" else 1)
            yield Problem(f"{path.stem}:{name}", getattr(module, name), _make_call(make), source=f"{path}:{name}")


def run_program(
    problem: Problem,
    device: str,
    machine: Machine,
    *,
    use_torch_compile: bool = True,
    num_input_sets: int | None = None,
    budget_s: float | None = None,
    tuner: Tuner | None = None,
) -> ProgramSuiteRow:
    """Optimise one program and time the result; an error becomes the row's reason.

    Args:
        use_torch_compile: time torch.compile as a variant too.
        num_input_sets: how many input sets verify the result; None is the default of `kw verify`.
        budget_s: for timing the whole program; None is `BUDGET_S`.
        tuner: autotuner of the regions; None creates one.
    """
    report_stage(problem.name)
    tuner = tuner or Tuner(backend_for(device), device, machine, use_torch_compile=use_torch_compile)
    try:
        return _optimize_and_time(problem, tuner, use_torch_compile, num_input_sets, budget_s or BUDGET_S)
    except KernelwrightError as error:
        return ProgramSuiteRow(name=problem.name, accepted=False, reason=str(error))
    except Exception as error:  # out of memory, a CUDA error, a bug of ours: the next program may be fine
        message = " ".join(str(error).split())[:MAX_REASON_CHARS]
        return ProgramSuiteRow(name=problem.name, accepted=False, reason=f"{type(error).__name__}: {message}")


def _optimize_and_time(
    problem: Problem, tuner: Tuner, compile: bool, sets: int | None, budget_s: float
) -> ProgramSuiteRow:
    device, machine = tuner.device, tuner.machine
    with torch.no_grad():
        optimized = optimize_problem(
            problem, tuner, sets, functools.partial(ProgramSelector, use_torch_compile=compile)
        )
        record: Any = optimized.optimization
        inputs = problem.inputs(device, 0)
        work = count_work(problem.program_on(device), *inputs)
        compulsory_bytes = work.fused.total_bytes
        variants: dict[str, Callable[..., Any]] = {OURS: optimized}
        if not record.is_unchanged:
            variants[EAGER] = make_baseline("eager", problem, device)
        if compile:
            variants[TORCH_COMPILE] = make_baseline("compile", problem, device)
        rounds = time_variants(
            variants | {COPY: _copy_baseline(compulsory_bytes, device)},
            inputs,
            device=device,
            last_cache_bytes=last_cache_bytes(machine),
            budget_s=budget_s,
        )
    times = {name: timing.time_us for name, timing in rounds.timings.items()}
    if record.is_unchanged:
        times[EAGER] = times[OURS]
    return ProgramSuiteRow(
        name=problem.name,
        accepted=record.verdict.accepted,
        reason=record.verdict.reason.detail if record.verdict.reason else "",
        compulsory_bytes=compulsory_bytes,
        floor_us=floor(work.fused, machine, cold_bytes=sum(first_read_bytes(work).values())).time_us,
        times_us=times,
        winners=tuple(_winner_lines(record)),
        fallbacks=tuple(fallback.operator for fallback in record.fallbacks),
    )


def _winner_lines(record: Optimization) -> Iterator[str]:
    """The winning variant of each region, and that of the whole program if it is a torch variant."""
    for region in record.regions:
        yield f"{region.name}: {region.winner}, {region.winner_reason}"
    if record.whole_program_winner:
        yield f"{WHOLE_PROGRAM_PREFIX}{record.whole_program_winner}"


def _copy_baseline(num_bytes: int, device: str) -> Callable[..., Any]:
    """A copy that reads and writes this many bytes in total; it ignores its arguments."""
    source = torch.empty(max(num_bytes // 2, 1), dtype=torch.uint8, device=device).fill_(1)
    target = torch.empty_like(source)
    return lambda *_: target.copy_(source)


def _make_call(make: Callable[[], list[torch.Tensor]]) -> Callable[[], Args]:
    return lambda: (make(), {})
