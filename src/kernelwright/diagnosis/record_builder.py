"""Builds the diagnosis record from an observation: rows, modules, summary, recommendations."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace

from msgspec import structs

from kernelwright.core.diagnosis import Diagnosis, Floors, ModuleSummary, OperatorSummary, Regime, WorkSummary
from kernelwright.diagnosis.observation import Observation, TimedOperator
from kernelwright.diagnosis.recommendations import attainable_us, recommend
from kernelwright.diagnosis.regime import classify_regime, collect_evidence, summarize

EXCEEDED_FACTOR = 1.1
"""A call that exceeds its ceiling by more than this factor shows that the ceiling is outdated; less is noise."""
MAX_UNGROUPED_CALLS = 12
"""Up to this many calls, each has its own row, in program order."""


def build_diagnosis(
    observation: Observation, problem: str, inputs: str = "", *, rank_by_gain: bool = False
) -> Diagnosis:
    """Build the diagnosis of an observation; `rank_by_gain` sorts rows by possible gain instead of program order."""
    observation = _strip_root_module(observation)
    regime = classify_regime(observation)
    best = attainable_us(observation)
    rows = _build_ranked_rows(observation, best) if rank_by_gain else _build_rows(observation, best)
    return Diagnosis(
        problem=problem,
        program=observation.program,
        regime=regime,
        summary=summarize(observation, regime),
        coverage=observation.work.coverage,
        time_us=None if observation.is_predicted else observation.time_us,
        floors=Floors(
            as_written_us=max(observation.as_written_floor_us, observation.fused_floor.time_us),
            fused_us=observation.fused_floor.time_us,
            limiter=observation.fused_floor.limiter,
        ),
        work=WorkSummary(
            flops=observation.work.as_written.total_flops,
            bytes_as_written=observation.work.as_written.total_bytes,
            bytes_fused=observation.work.fused.total_bytes,
        ),
        operators=tuple(rows),
        recommendations=recommend(observation) if regime != "undetermined" else (),
        evidence=collect_evidence(observation),
        machine=observation.machine,
        predicted=observation.is_predicted,
        page_fault_us=observation.fault_us,
        overhead_us=observation.idle_us + sum(c.net_us for c in observation.operators if c.regime == "overhead-bound"),
        timing=observation.timing,
        modules=_build_module_rows(observation, best),
        input_summary=inputs,
        notes=_ceiling_warnings(observation),
    )


def _ceiling_warnings(observation: Observation) -> tuple[str, ...]:
    """Notes on ceilings that a call exceeds: they were measured while the machine was disturbed."""
    exceeded = {
        c.floor.limiter
        for c in observation.operators
        if c.floor.time_us > EXCEEDED_FACTOR * c.net_us and c.time_us > observation.time_us / 10
    }
    return tuple(
        f"faster than the {name} ceiling measured earlier: kw machine --remeasure" for name in sorted(exceeded)
    )


def _strip_root_module(observation: Observation) -> Observation:
    """Remove the root module from the module paths if all share it."""
    paths = [call.operator.module for call in observation.operators]
    roots = {path.partition(".")[0] for path in paths if path}
    if len(roots) != 1:
        return observation
    calls = [
        replace(c, operator=structs.replace(c.operator, module=c.operator.module.partition(".")[2]))
        for c in observation.operators
    ]
    return replace(observation, operators=tuple(calls))


def _build_rows(observation: Observation, best_us: dict[int, float]) -> list[OperatorSummary]:
    calls = [call for call in observation.operators if call.operator.kind != "view"]
    if len(calls) <= MAX_UNGROUPED_CALLS:
        return [_build_row([call], observation, best_us) for call in calls]
    groups = _group_by(calls, lambda c: (c.operator.module, c.operator.name, c.operator.shapes))
    return [_build_row(group, observation, best_us) for group in groups]


def _build_ranked_rows(observation: Observation, best_us: dict[int, float]) -> list[OperatorSummary]:
    """One row per operator and module: long-running code repeats the same calls many times."""
    calls = [call for call in observation.operators if call.operator.kind != "view"]
    groups = _group_by(calls, lambda c: (c.operator.module, c.operator.name))
    return sorted((_build_row(group, observation, best_us) for group in groups), key=lambda row: -row.gain_us)


def _build_row(group: list[TimedOperator], observation: Observation, best_us: dict[int, float]) -> OperatorSummary:
    time_us = sum(call.time_us for call in group)
    first = group[0].operator
    return OperatorSummary(
        name=first.name,
        module=first.module,
        calls=len(group),
        time_us=time_us,
        share=time_us / observation.time_us if observation.time_us else 0.0,
        floor_us=sum(call.floor.time_us for call in group),
        regime=_dominant_regime(group),
        bytes=sum(call.operator.work.total_bytes for call in group),
        flops=sum(call.operator.work.total_flops for call in group),
        gain_us=sum(call.time_us - best_us[call.operator.index] for call in group),
        kind=first.kind,
    )


def _build_module_rows(observation: Observation, best_us: dict[int, float]) -> tuple[ModuleSummary, ...]:
    """Modules sorted by possible gain; empty if no call came from a module."""
    groups = _group_by(observation.operators, lambda c: c.operator.module)
    if all(not group[0].operator.module for group in groups):
        return ()
    rows = [
        ModuleSummary(
            module=group[0].operator.module,
            calls=len(group),
            time_us=(time_us := sum(call.time_us for call in group)),
            share=time_us / observation.time_us if observation.time_us else 0.0,
            gain_us=sum(call.time_us - best_us[call.operator.index] for call in group),
            regime=_dominant_regime(group),
        )
        for group in groups
    ]
    return tuple(sorted(rows, key=lambda row: -row.gain_us))


def _dominant_regime(group: list[TimedOperator]) -> Regime:
    spent: dict[Regime, float] = {}
    for call in group:
        spent[call.regime] = spent.get(call.regime, 0.0) + call.net_us
    return max(spent, key=lambda regime: spent[regime])


def _group_by(
    calls: tuple[TimedOperator, ...] | list[TimedOperator], key: Callable[[TimedOperator], Hashable]
) -> list[list[TimedOperator]]:
    groups: dict[Hashable, list[TimedOperator]] = {}
    for call in calls:
        groups.setdefault(key(call), []).append(call)
    return list(groups.values())
