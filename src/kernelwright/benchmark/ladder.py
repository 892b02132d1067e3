"""Climbs a ladder: every rung is verified on many shapes, then timed beside the library, the two alternating."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import torch

from kernelwright.core.errors import CandidateError, ProblemError, UsageError
from kernelwright.core.ladder import LadderRun, RungOutcome, SizeTiming
from kernelwright.core.progress import report_stage
from kernelwright.ladders import Rung, find_rung, ladder_device, read_rungs, task_path
from kernelwright.machines import machine as machine_here
from kernelwright.machines.floor import last_cache_bytes
from kernelwright.measure.clock import GraphClock, measure_steady_us
from kernelwright.measure.paired import time_variants
from kernelwright.problems import Problem, load_candidate, load_problem
from kernelwright.problems.importing import import_file
from kernelwright.verification.quick_check import find_mismatch

BUDGET_S = 0.6
MAX_CALL_US = 400_000.0
"""A size on which one call takes longer is not timed: the smaller ones have said it."""
ALPHA_BETA_PAIRS = ((1.0, 0.0), (1.25, -0.5))
"""alpha and beta on which a rung must be right."""
Size = tuple[int, ...]


def run_ladder(
    ladder: str, *, rung_names: Sequence[str] = (), sizes: Sequence[Size] = (), device: str = ""
) -> LadderRun:
    """Verifies and times the rungs of a ladder here.

    Args:
        rung_names: rungs by number or name; all of them when none is named.
        sizes: in place of the ladder's own.
        device: `cpu` for a ladder in CUDA C++ checks it by emulation and times nothing; by default the ladder's own.
    Raises:
        NotFoundError: no such ladder or rung. DeviceError: it needs a GPU that is not here.
    """
    home = ladder_device(ladder)
    device = device or home
    if home == "cpu" and device == "cuda":
        raise UsageError(f"{ladder} climbs on the CPU", next=f"kw ladder {ladder}")
    chosen = [find_rung(ladder, one) for one in rung_names] or read_rungs(ladder)
    task, problem = import_file(task_path(ladder), ProblemError), load_problem(str(task_path(ladder)))
    here = machine_here(device)
    outcomes = []
    for one in chosen:
        report_stage(f"rung {one.number}, {one.name}", 300)
        timed = list(sizes or task.SIZES) if device == home else []
        outcomes.append(_run_rung(one, task, problem, timed, device, last_cache_bytes(here)))
    notes = () if device == home else ("emulated on the CPU: right or wrong is said, and no time",)
    return LadderRun(ladder=ladder, machine=here, baseline=task.BASELINE, rungs=tuple(outcomes), notes=notes)


def _run_rung(
    one: Rung, task: ModuleType, problem: Problem, sizes: Sequence[Size], device: str, cache_bytes: int
) -> RungOutcome:
    def outcome(accepted: bool, **more: Any) -> RungOutcome:
        return RungOutcome(
            number=one.number,
            name=one.name,
            title=one.title,
            question=one.question,
            hypothesis=one.hypothesis,
            next=one.next,
            accepted=accepted,
            num_shapes=len(task.SHAPES),
            **more,
        )

    try:
        program = load_candidate(str(one.path), problem, device).program
    except CandidateError as fault:
        return outcome(False, reason=str(fault))
    if reason := _find_mismatch(program, task, problem, device):
        return outcome(False, reason=reason)
    times, skipped = [], []
    for size in sizes:
        if (found := _time_size(one, program, task, size, device, cache_bytes)) is None:
            skipped.append("x".join(map(str, size)))
        else:
            times.append(found)
    notes = (f"too slow to time at {', '.join(skipped)}",) if skipped else ()
    return outcome(True, times=tuple(times), notes=notes)


def _find_mismatch(program: Any, task: ModuleType, problem: Problem, device: str) -> str:
    """On which shape a rung is wrong and how, or nothing."""
    for shape in task.SHAPES:
        for scales in ALPHA_BETA_PAIRS:
            torch.manual_seed(0)
            *tensors, alpha, beta = _to_device(task.inputs(shape, *scales), device)
            if beta == 0.0:
                tensors[-1].fill_(float("nan"))  # c: not to be read then
            reason = find_mismatch(
                lambda *given, scale=alpha, keep=beta: problem.program(*given, scale, keep),
                lambda *given, scale=alpha, keep=beta: program(*given, scale, keep),
                tensors,
            )
            if reason:
                return f"at {'x'.join(map(str, shape))} with alpha {alpha} and beta {beta}: {reason.detail}"
    return ""


def _time_size(
    one: Rung, program: Any, task: ModuleType, size: Size, device: str, cache_bytes: int
) -> SizeTiming | None:
    report_stage(f"rung {one.number}, {one.name}, {'x'.join(map(str, size))}", 60)
    torch.manual_seed(0)
    inputs = _to_device(task.inputs(size), device)
    with torch.no_grad():
        if measure_steady_us(lambda: program(*inputs), device, budget_s=0.0) > MAX_CALL_US:
            return None
        arms = {one.name: program, task.BASELINE: task.baseline}
        clock = GraphClock() if device == "cuda" else None  # a library's call costs the host less than a candidate's
        rounds = time_variants(
            arms, (inputs, {}), device=device, last_cache_bytes=cache_bytes, budget_s=BUDGET_S, clock=clock
        )
    return SizeTiming(
        size=size,
        flops=task.flops(size),
        bytes=task.bytes_moved(size),
        time_us=rounds.timings[one.name].time_us,
        baseline_us=rounds.timings[task.BASELINE].time_us,
        comparison=rounds.compare(one.name, task.BASELINE),
    )


def _to_device(inputs: Sequence[Any], device: str) -> list[Any]:
    return [one.to(device) if isinstance(one, torch.Tensor) else one for one in inputs]
