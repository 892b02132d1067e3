"""Runs a ladder: verifies every rung on several shapes, then times it interleaved with the library baseline."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import torch

from kernelwright.core.errors import CandidateError, ProblemError, UsageError
from kernelwright.core.ladder import LadderRun, RungOutcome, SizeTiming
from kernelwright.core.progress import report_stage
from kernelwright.ladders import Rung, find_rung, ladder_device, read_rungs, task_path
from kernelwright.machines import machine as measured_machine
from kernelwright.machines.floor import last_cache_bytes
from kernelwright.measure.clock import GraphClock, measure_steady_us
from kernelwright.measure.paired import time_variants
from kernelwright.problems import Problem, load_candidate, load_problem
from kernelwright.problems.importing import import_file
from kernelwright.verification.quick_check import find_mismatch

BUDGET_S = 0.6
MAX_CALL_US = 400_000.0
"""Sizes with longer calls are not timed; the smaller sizes show the same."""
ALPHA_BETA_PAIRS = ((1.0, 0.0), (1.25, -0.5))
"""Scalars with which every rung is verified, where the problem does not name its own."""
Size = tuple[int, ...]


def run_ladder(
    ladder: str, *, rung_names: Sequence[str] = (), sizes: Sequence[Size] = (), device: str = ""
) -> LadderRun:
    """Verify and time the rungs of a ladder on this machine.

    Args:
        rung_names: rungs by number or name; all if empty.
        sizes: replace the ladder's own sizes.
        device: defaults to the ladder's own. `cpu` for a CUDA C++ ladder verifies by emulation and times nothing.
    Raises:
        NotFoundError: no such ladder or rung.
        DeviceError: the ladder needs a GPU and none is available.
    """
    native_device = ladder_device(ladder)
    device = device or native_device
    if native_device == "cpu" and device == "cuda":
        raise UsageError(f"{ladder} runs on the CPU, not on cuda", next=f"kw ladder {ladder}")
    rungs = [find_rung(ladder, name) for name in rung_names] or read_rungs(ladder)
    task, problem = import_file(task_path(ladder), ProblemError), load_problem(str(task_path(ladder)))
    machine = measured_machine(device)
    outcomes = []
    for rung in rungs:
        report_stage(f"rung {rung.number}, {rung.name}", 300)
        timed = list(sizes or task.SIZES) if device == native_device else []
        outcomes.append(_run_rung(rung, task, problem, timed, device, last_cache_bytes(machine)))
    notes = () if device == native_device else ("emulated on the CPU: verified, not timed",)
    return LadderRun(
        ladder=ladder,
        machine=machine,
        baseline=task.BASELINE,
        rungs=tuple(outcomes),
        dtype=str(problem.meta_inputs[0][0].dtype).removeprefix("torch."),
        notes=notes,
    )


def _run_rung(
    rung: Rung, task: ModuleType, problem: Problem, sizes: Sequence[Size], device: str, cache_bytes: int
) -> RungOutcome:
    def outcome(accepted: bool, **more: Any) -> RungOutcome:
        return RungOutcome(
            number=rung.number,
            name=rung.name,
            title=rung.title,
            question=rung.question,
            hypothesis=rung.hypothesis,
            next=rung.next,
            accepted=accepted,
            num_shapes=len(task.SHAPES),
            **more,
        )

    try:
        program = load_candidate(str(rung.path), problem, device).program
    except CandidateError as error:
        return outcome(False, reason=str(error))
    if reason := _find_mismatch(program, task, problem, device):
        return outcome(False, reason=reason)
    times, skipped = [], []
    for size in sizes:
        if (timing := _time_size(rung, program, task, size, device, cache_bytes)) is None:
            skipped.append("x".join(map(str, size)))
        else:
            times.append(timing)
    notes = (f"too slow to time at {', '.join(skipped)}",) if skipped else ()
    return outcome(True, times=tuple(times), notes=notes)


def _find_mismatch(program: Any, task: ModuleType, problem: Problem, device: str) -> str:
    """The first mismatch with its shape and scalars, or an empty string."""
    for shape in task.SHAPES:
        for scalars in getattr(task, "VERIFIED_SCALARS", ALPHA_BETA_PAIRS):
            torch.manual_seed(0)
            inputs = _to_device(task.inputs(shape, *scalars), device)
            tensors = inputs[: len(inputs) - len(scalars)]
            if scalars and scalars[-1] == 0.0:
                tensors[-1].fill_(float("nan"))  # with beta = 0, c must not be read
            reason = find_mismatch(
                lambda *args, scalars=scalars: problem.program(*args, *scalars),
                lambda *args, scalars=scalars: program(*args, *scalars),
                tensors,
            )
            if reason:
                with_scalars = f" with {', '.join(map(str, scalars))}" if scalars else ""
                return f"at {'x'.join(map(str, shape))}{with_scalars}: {reason.detail}"
    return ""


def _time_size(
    rung: Rung, program: Any, task: ModuleType, size: Size, device: str, cache_bytes: int
) -> SizeTiming | None:
    report_stage(f"rung {rung.number}, {rung.name}, {'x'.join(map(str, size))}", 60)
    torch.manual_seed(0)
    inputs = _to_device(task.inputs(size), device)
    with torch.no_grad():
        if measure_steady_us(lambda: program(*inputs), device, budget_s=0.0) > MAX_CALL_US:
            return None
        variants = {rung.name: program, task.BASELINE: task.baseline}
        clock = (
            GraphClock() if device == "cuda" else None
        )  # excludes host time, which is lower for a library call than for a candidate
        rounds = time_variants(
            variants, (inputs, {}), device=device, last_cache_bytes=cache_bytes, budget_s=BUDGET_S, clock=clock
        )
    return SizeTiming(
        size=size,
        flops=task.flops(size),
        bytes=task.bytes_moved(size),
        time_us=rounds.timings[rung.name].time_us,
        baseline_us=rounds.timings[task.BASELINE].time_us,
        comparison=rounds.compare(rung.name, task.BASELINE),
    )


def _to_device(inputs: Sequence[Any], device: str) -> list[Any]:
    return [one.to(device) if isinstance(one, torch.Tensor) else one for one in inputs]
