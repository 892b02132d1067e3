"""A suite of programs, each optimised and timed beside eager, torch.compile and a copy of the same bytes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from kernelwright.benchmark.variants import make_baseline
from kernelwright.compiler.backends import backend_for
from kernelwright.compiler.in_memory import optimize_problem
from kernelwright.compiler.tuning import Tuner
from kernelwright.core.errors import KernelwrightError, ProblemError
from kernelwright.core.optimization import TORCH_COMPILE, WHOLE_PROGRAM_PREFIX, Optimization, ProgramSuiteRow
from kernelwright.core.progress import report_stage
from kernelwright.core.records import Machine
from kernelwright.machines.floor import floor, last_cache_bytes
from kernelwright.measure.paired import time_variants
from kernelwright.problems import Problem, load_problem
from kernelwright.problems.device_inputs import draw_inputs_on
from kernelwright.problems.importing import import_file
from kernelwright.problems.problem import Args
from kernelwright.work import count_work, first_read_bytes

OURS, COPY, EAGER = "kernelwright", "copy", "eager"
BUDGET_S = 2.0
MAX_REASON_CHARS = 400


def load_programs(folder: str, device: str) -> Iterator[Problem]:
    """The programs of a folder: functions with their `NAME_inputs(scale)`, sized for the device by `GPU_SCALE`, and
    problem files in KernelBench's form, as they are."""
    for path in sorted(Path(folder).glob("*.py")):
        module = import_file(path, ProblemError)
        if not hasattr(module, "GPU_SCALE"):
            problem = load_problem(str(path))
            yield replace(problem, make_inputs=draw_inputs_on(device, problem.make_inputs))
            continue
        for name, scale in module.GPU_SCALE.items():
            make = functools.partial(getattr(module, f"{name}_inputs"), scale if device == "cuda" else 1)
            yield Problem(
                f"{path.stem}:{name}", getattr(module, name), _make_call(make, device), source=f"{path}:{name}"
            )


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
    """Optimises one program and times what came of it; whatever goes wrong is the row's reason.

    Args:
        use_torch_compile: let torch.compile compete.
        num_input_sets: how many sets of inputs the result is proved on; None is what `kw verify` takes.
        budget_s: for timing the whole program; None is `SAMPLING_TIMEOUT_S`.
        tuner: who tries the ways to compute a region.
    """
    report_stage(problem.name)
    tuner = tuner or Tuner(backend_for(device), device, machine, use_torch_compile=use_torch_compile)
    try:
        return _optimize_and_time(problem, tuner, use_torch_compile, num_input_sets, budget_s or BUDGET_S)
    except KernelwrightError as fault:
        return ProgramSuiteRow(name=problem.name, accepted=False, reason=str(fault))
    except Exception as fault:  # out of memory, a CUDA error, a bug of ours: the next program may be fine
        said = " ".join(str(fault).split())[:MAX_REASON_CHARS]
        return ProgramSuiteRow(name=problem.name, accepted=False, reason=f"{type(fault).__name__}: {said}")


def _optimize_and_time(
    problem: Problem, tuner: Tuner, compile: bool, sets: int | None, budget_s: float
) -> ProgramSuiteRow:
    device, machine = tuner.device, tuner.machine
    with torch.no_grad():
        ours = optimize_problem(problem, tuner, sets)
        found: Any = ours.optimization
        inputs = problem.inputs(device, 0)
        work = count_work(problem.program_on(device), *inputs)
        moved = work.fused.total_bytes
        arms: dict[str, Callable[..., Any]] = {OURS: ours}
        if not found.is_unchanged:
            arms[EAGER] = make_baseline("eager", problem, device)
        if compile:
            arms[TORCH_COMPILE] = make_baseline("compile", problem, device)
        rounds = time_variants(
            arms | {COPY: _copy_baseline(moved, device)},
            inputs,
            device=device,
            last_cache_bytes=last_cache_bytes(machine),
            budget_s=budget_s,
        )
    times = {name: timing.time_us for name, timing in rounds.timings.items()}
    if found.is_unchanged:
        times[EAGER] = times[OURS]
    return ProgramSuiteRow(
        name=problem.name,
        accepted=found.verdict.accepted,
        reason=found.verdict.reason.detail if found.verdict.reason else "",
        compulsory_bytes=moved,
        floor_us=floor(work.fused, machine, cold_bytes=sum(first_read_bytes(work).values())).time_us,
        times_us=times,
        winners=tuple(_winner_lines(found)),
        fallbacks=tuple(left.operator for left in found.fallbacks),
    )


def _winner_lines(found: Optimization) -> Iterator[str]:
    """Who computes each region, and who the whole program where that is another."""
    for region in found.regions:
        yield f"{region.name}: {region.winner}, {region.winner_reason}"
    if found.whole_program_winner:
        yield f"{WHOLE_PROGRAM_PREFIX}{found.whole_program_winner}"


def _copy_baseline(moved: int, device: str) -> Callable[..., Any]:
    """A copy that moves as many bytes as a program must, half of them read; it takes any arguments."""
    source = torch.empty(max(moved // 2, 1), dtype=torch.uint8, device=device).fill_(1)
    target = torch.empty_like(source)
    return lambda *_: target.copy_(source)


def _make_call(make: Callable[[], list[torch.Tensor]], device: str) -> Callable[[], Args]:
    return draw_inputs_on(device, lambda: (make(), {}))
