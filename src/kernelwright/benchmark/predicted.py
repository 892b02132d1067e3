"""A bench for a machine that is not there: every time from its datasheet, and no claim of who is faster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from kernelwright.core.bench import Bench, VariantTiming
from kernelwright.core.machine import Machine
from kernelwright.core.verdict import Verdict
from kernelwright.diagnosis.why import bypasses_dispatcher, predict_problem
from kernelwright.machines.floor import datasheet_bound_us
from kernelwright.problems import Candidate, Problem, load_candidate


def predict_bench(
    problem: Problem,
    machine: Machine,
    candidates: dict[str, Any],
    baselines: Sequence[str],
    verdicts: tuple[Verdict, ...],
) -> Bench:
    """Eager and each candidate in which torch sees operators; whatever has no prediction is named in the notes."""
    original, notes, arms = predict_problem(problem, machine), [], []
    bound_us = datasheet_bound_us(original.work.fused, machine.spec)

    def arm(name: str, time_us: float) -> VariantTiming:
        return VariantTiming(
            name=name,
            time_us=time_us,
            low_us=time_us,
            high_us=time_us,
            floor_us=original.fused_floor.time_us,
            datasheet_bound_us=bound_us,
        )

    for name, candidate in candidates.items():
        loaded = (
            load_candidate(candidate, problem, "cpu") if isinstance(candidate, str) else _as_candidate(name, candidate)
        )
        read = replace(problem, name=name, program=loaded.program, module=None)
        if bypasses_dispatcher(read, original.work, "cpu"):
            notes.append(f"{name} is not predicted: what it does is not done by operators that torch sees")
        else:
            arms.append(arm(name, predict_problem(read, machine).time_us))
    if "eager" in baselines:
        arms.append(arm("eager", original.time_us))
    if "compile" in baselines:
        notes.append("torch.compile is not predicted: what it would fuse is known only where it runs")
    return Bench(
        problem=problem.name,
        machine=machine,
        variants=tuple(sorted(arms, key=lambda arm: arm.time_us)),
        comparisons=(),
        verdicts=verdicts,
        predicted=True,
        notes=tuple(notes),
    )


def _as_candidate(name: str, candidate: Any) -> Candidate:
    return candidate if isinstance(candidate, Candidate) else Candidate(name, candidate)
