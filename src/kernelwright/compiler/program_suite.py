"""A suite of programs, each optimised and timed beside eager, torch.compile and a copy of the same bytes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from kernelwright.benchmark.variants import baseline_program
from kernelwright.compiler.backends import generator_for
from kernelwright.compiler.in_memory import with_kernels
from kernelwright.compiler.tuning import Tuner
from kernelwright.core.errors import KernelwrightError, ProblemError
from kernelwright.core.optimization import COMPILED, WHOLE, Optimization, SuiteRow
from kernelwright.core.progress import stage
from kernelwright.core.records import Machine
from kernelwright.machines.floor import floor, last_cache_bytes
from kernelwright.measure.paired import time_arms
from kernelwright.problems import Problem, load_problem
from kernelwright.problems.device_inputs import made_on
from kernelwright.problems.importing import import_file
from kernelwright.problems.problem import Args
from kernelwright.work import count, first_reads

OURS, COPY, EAGER = "kernelwright", "copy", "eager"
BUDGET_S = 2.0
REASON_LENGTH = 400


def programs(folder: str, device: str) -> Iterator[Problem]:
    """The programs of a folder: functions with their `NAME_inputs(scale)`, sized for the device by `GPU_SCALE`, and
    problem files in KernelBench's form, as they are."""
    for path in sorted(Path(folder).glob("*.py")):
        module = import_file(path, ProblemError)
        if not hasattr(module, "GPU_SCALE"):
            problem = load_problem(str(path))
            yield replace(problem, make_inputs=made_on(device, problem.make_inputs))
            continue
        for name, scale in module.GPU_SCALE.items():
            make = functools.partial(getattr(module, f"{name}_inputs"), scale if device == "cuda" else 1)
            yield Problem(f"{path.stem}:{name}", getattr(module, name), _as_call(make, device), source=f"{path}:{name}")


def run_one(
    problem: Problem,
    device: str,
    machine: Machine,
    *,
    compile: bool = True,
    sets: int | None = None,
    budget_s: float | None = None,
    tuner: Tuner | None = None,
) -> SuiteRow:
    """Optimises one program and times what came of it; whatever goes wrong is the row's reason.

    Args:
        compile: let torch.compile compete.
        sets: how many sets of inputs the result is proved on; None is what `kw verify` takes.
        budget_s: for timing the whole program; None is `BUDGET_S`.
        tuner: who tries the ways to compute a region.
    """
    stage(problem.name)
    tuner = tuner or Tuner(generator_for(device), device, machine, compile=compile)
    try:
        return _run(problem, tuner, compile, sets, budget_s or BUDGET_S)
    except KernelwrightError as fault:
        return SuiteRow(name=problem.name, accepted=False, reason=str(fault))
    except Exception as fault:  # out of memory, a CUDA error, a bug of ours: the next program may be fine
        said = " ".join(str(fault).split())[:REASON_LENGTH]
        return SuiteRow(name=problem.name, accepted=False, reason=f"{type(fault).__name__}: {said}")


def _run(problem: Problem, tuner: Tuner, compile: bool, sets: int | None, budget_s: float) -> SuiteRow:
    device, machine = tuner.device, tuner.machine
    with torch.no_grad():
        ours = with_kernels(problem, tuner, sets)
        found: Any = ours.optimization
        inputs = problem.inputs(device, 0)
        work = count(problem.on(device), *inputs)
        moved = work.fused.total_bytes
        arms: dict[str, Callable[..., Any]] = {OURS: ours}
        if not found.as_it_was:
            arms[EAGER] = baseline_program("eager", problem, device)
        if compile:
            arms[COMPILED] = baseline_program("compile", problem, device)
        rounds = time_arms(
            arms | {COPY: _copy(moved, device)},
            inputs,
            device=device,
            last_cache_bytes=last_cache_bytes(machine),
            budget_s=budget_s,
        )
    times = {name: timing.time_us for name, timing in rounds.timings.items()}
    if found.as_it_was:
        times[EAGER] = times[OURS]
    return SuiteRow(
        name=problem.name,
        accepted=found.verdict.accepted,
        reason=found.verdict.reason.detail if found.verdict.reason else "",
        compulsory_bytes=moved,
        floor_us=floor(work.fused, machine, cold_bytes=sum(first_reads(work).values())).time_us,
        times_us=times,
        winners=tuple(_winners(found)),
        left=tuple(left.operator for left in found.left),
    )


def _winners(found: Optimization) -> Iterator[str]:
    """Who computes each region, and who the whole program where that is another."""
    for region in found.regions:
        yield f"{region.name}: {region.winner}, {region.why}"
    if found.whole:
        yield f"{WHOLE}{found.whole}"


def _copy(moved: int, device: str) -> Callable[..., Any]:
    """A copy that moves as many bytes as a program must, half of them read; it takes any arguments."""
    source = torch.empty(max(moved // 2, 1), dtype=torch.uint8, device=device).fill_(1)
    target = torch.empty_like(source)
    return lambda *_: target.copy_(source)


def _as_call(make: Callable[[], list[torch.Tensor]], device: str) -> Callable[[], Args]:
    return made_on(device, lambda: (make(), {}))
