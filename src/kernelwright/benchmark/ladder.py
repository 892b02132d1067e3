"""Climbs a ladder: every rung is verified on many shapes, then timed beside the library, the two alternating."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import torch

from kernelwright.core.errors import CandidateError, ProblemError, UsageError
from kernelwright.core.ladder import Climb, RungOutcome, SizeTime
from kernelwright.core.progress import stage
from kernelwright.ladders import Rung, device_of, rung, rungs, task_of
from kernelwright.machines import machine as machine_here
from kernelwright.machines.floor import last_cache_bytes
from kernelwright.measure.clock import GraphClock, steady_us
from kernelwright.measure.paired import time_arms
from kernelwright.problems import Problem, load_candidate, load_problem
from kernelwright.problems.importing import import_file
from kernelwright.verification.quick_check import disagreement

BUDGET_S = 0.6
LONGEST_US = 400_000.0
"""A size on which one call takes longer is not timed: the smaller ones have said it."""
SCALES = ((1.0, 0.0), (1.25, -0.5))
"""alpha and beta on which a rung must be right."""
Size = tuple[int, ...]


def climb(ladder: str, *, which: Sequence[str] = (), sizes: Sequence[Size] = (), device: str = "") -> Climb:
    """Verifies and times the rungs of a ladder here.

    Args:
        which: rungs by number or name; all of them when none is named.
        sizes: in place of the ladder's own.
        device: `cpu` for a ladder in CUDA C++ checks it by emulation and times nothing; by default the ladder's own.
    Raises:
        NotFoundError: no such ladder or rung. DeviceError: it needs a GPU that is not here.
    """
    home = device_of(ladder)
    device = device or home
    if home == "cpu" and device == "cuda":
        raise UsageError(f"{ladder} climbs on the CPU", next=f"kw ladder {ladder}")
    chosen = [rung(ladder, one) for one in which] or rungs(ladder)
    task, problem = import_file(task_of(ladder), ProblemError), load_problem(str(task_of(ladder)))
    here = machine_here(device)
    outcomes = []
    for one in chosen:
        stage(f"rung {one.number}, {one.name}", 300)
        timed = list(sizes or task.SIZES) if device == home else []
        outcomes.append(_stand(one, task, problem, timed, device, last_cache_bytes(here)))
    notes = () if device == home else ("emulated on the CPU: right or wrong is said, and no time",)
    return Climb(ladder=ladder, machine=here, peer=task.PEER, rungs=tuple(outcomes), notes=notes)


def _stand(
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
            shapes=len(task.SHAPES),
            **more,
        )

    try:
        program = load_candidate(str(one.path), problem, device).program
    except CandidateError as fault:
        return outcome(False, reason=str(fault))
    if reason := _wrong(program, task, problem, device):
        return outcome(False, reason=reason)
    times, skipped = [], []
    for size in sizes:
        if (found := _timed(one, program, task, size, device, cache_bytes)) is None:
            skipped.append("x".join(map(str, size)))
        else:
            times.append(found)
    notes = (f"too slow to time at {', '.join(skipped)}",) if skipped else ()
    return outcome(True, times=tuple(times), notes=notes)


def _wrong(program: Any, task: ModuleType, problem: Problem, device: str) -> str:
    """On which shape a rung is wrong and how, or nothing."""
    for shape in task.SHAPES:
        for scales in SCALES:
            torch.manual_seed(0)
            *tensors, alpha, beta = _on(task.inputs(shape, *scales), device)
            if beta == 0.0:
                tensors[-1].fill_(float("nan"))  # c: not to be read then
            reason = disagreement(
                lambda *given, scale=alpha, keep=beta: problem.program(*given, scale, keep),
                lambda *given, scale=alpha, keep=beta: program(*given, scale, keep),
                tensors,
            )
            if reason:
                return f"at {'x'.join(map(str, shape))} with alpha {alpha} and beta {beta}: {reason.detail}"
    return ""


def _timed(one: Rung, program: Any, task: ModuleType, size: Size, device: str, cache_bytes: int) -> SizeTime | None:
    stage(f"rung {one.number}, {one.name}, {'x'.join(map(str, size))}", 60)
    torch.manual_seed(0)
    inputs = _on(task.inputs(size), device)
    with torch.no_grad():
        if steady_us(lambda: program(*inputs), device, budget_s=0.0) > LONGEST_US:
            return None
        arms = {one.name: program, task.PEER: task.peer}
        clock = GraphClock() if device == "cuda" else None  # a library's call costs the host less than a candidate's
        rounds = time_arms(
            arms, (inputs, {}), device=device, last_cache_bytes=cache_bytes, budget_s=BUDGET_S, clock=clock
        )
    return SizeTime(
        size=size,
        flops=task.flops(size),
        bytes=task.bytes_moved(size),
        time_us=rounds.timings[one.name].time_us,
        peer_us=rounds.timings[task.PEER].time_us,
        compared=rounds.compare(one.name, task.PEER),
    )


def _on(inputs: Sequence[Any], device: str) -> list[Any]:
    return [one.to(device) if isinstance(one, torch.Tensor) else one for one in inputs]
