"""Benchmark predicted for a machine that is not available: every time from its datasheet, without comparisons."""

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
    """Predict eager and every candidate whose operators torch dispatches; the notes name those without prediction."""
    original, notes, variants = predict_problem(problem, machine), [], []
    bound_us = datasheet_bound_us(original.work.fused, machine.spec)

    def make_variant(name: str, time_us: float) -> VariantTiming:
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
        candidate_problem = replace(problem, name=name, program=loaded.program, module=None)
        if bypasses_dispatcher(candidate_problem, original.work, "cpu"):
            notes.append(f"{name} is not predicted: its work bypasses the torch dispatcher")
        else:
            variants.append(make_variant(name, predict_problem(candidate_problem, machine).time_us))
    if "eager" in baselines:
        variants.append(make_variant("eager", original.time_us))
    if "compile" in baselines:
        notes.append("torch.compile is not predicted: its fusions are known only on the machine itself")
    return Bench(
        problem=problem.name,
        machine=machine,
        variants=tuple(sorted(variants, key=lambda variant: variant.time_us)),
        comparisons=(),
        verdicts=verdicts,
        predicted=True,
        notes=tuple(notes),
    )


def _as_candidate(name: str, candidate: Any) -> Candidate:
    return candidate if isinstance(candidate, Candidate) else Candidate(name, candidate)
