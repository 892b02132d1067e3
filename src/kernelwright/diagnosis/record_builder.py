"""From an observation to the record that people read: rows, modules, sentence, moves."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace

from msgspec import structs

from kernelwright.core.records import (
    Diagnosis,
    Floors,
    ModuleReading,
    OperatorReading,
    Regime,
    WorkSummary,
)
from kernelwright.diagnosis.observation import Call, Observation
from kernelwright.diagnosis.recommendations import attainable_us, moves
from kernelwright.diagnosis.regime import evidence, regime_of, sentence

BEATEN = 1.1
"""Times over its ceiling from which on a call puts the ceiling in doubt, and not the noise of the two measurements."""
FEW_CALLS = 12
"""Up to this many calls each has its own row, in the order of the program."""


def diagnosis(seen: Observation, problem: str, inputs: str = "", *, ranked: bool = False) -> Diagnosis:
    """The whole reading of an observation; `ranked` sorts rows by what could be gained instead of by program order."""
    seen = _without_root(seen)
    regime = regime_of(seen)
    best = attainable_us(seen)
    rows = _ranked_rows(seen, best) if ranked else _rows(seen, best)
    return Diagnosis(
        problem=problem,
        program=seen.program,
        regime=regime,
        sentence=sentence(seen, regime),
        coverage=seen.work.coverage,
        time_us=None if seen.predicted else seen.time_us,
        floors=Floors(
            as_written_us=max(seen.as_written_us, seen.fused.time_us),
            fused_us=seen.fused.time_us,
            limiter=seen.fused.limiter,
        ),
        work=WorkSummary(
            flops=seen.work.as_written.total_flops,
            bytes_as_written=seen.work.as_written.total_bytes,
            bytes_fused=seen.work.fused.total_bytes,
        ),
        operators=tuple(rows),
        moves=moves(seen) if regime != "undetermined" else (),
        evidence=evidence(seen),
        machine=seen.machine,
        predicted=seen.predicted,
        fault_us=seen.fault_us,
        overhead_us=seen.idle_us + sum(c.net_us for c in seen.calls if c.regime == "overhead-bound"),
        timing=seen.timing,
        modules=_modules(seen, best),
        inputs=inputs,
        notes=_doubts(seen),
    )


def _doubts(seen: Observation) -> tuple[str, ...]:
    """A ceiling that a call beats was measured while something held the machine back."""
    beaten = {
        c.floor.limiter for c in seen.calls if c.floor.time_us > BEATEN * c.net_us and c.time_us > seen.time_us / 10
    }
    return tuple(f"faster than the {name} ceiling measured earlier: kw machine --remeasure" for name in sorted(beaten))


def _without_root(seen: Observation) -> Observation:
    """Module paths without the first name where all share it: the root module says nothing."""
    paths = [call.operator.module for call in seen.calls]
    roots = {path.partition(".")[0] for path in paths if path}
    if len(roots) != 1:
        return seen
    calls = [
        replace(c, operator=structs.replace(c.operator, module=c.operator.module.partition(".")[2])) for c in seen.calls
    ]
    return replace(seen, calls=tuple(calls))


def _rows(seen: Observation, best: dict[int, float]) -> list[OperatorReading]:
    calls = [call for call in seen.calls if call.operator.kind != "view"]
    if len(calls) <= FEW_CALLS:
        return [_row([call], seen, best) for call in calls]
    groups = _grouped(calls, lambda c: (c.operator.module, c.operator.name, c.operator.shapes))
    return [_row(group, seen, best) for group in groups]


def _ranked_rows(seen: Observation, best: dict[int, float]) -> list[OperatorReading]:
    """Code that ran for a while makes the same calls many times: one row for each operator of each module."""
    calls = [call for call in seen.calls if call.operator.kind != "view"]
    groups = _grouped(calls, lambda c: (c.operator.module, c.operator.name))
    return sorted((_row(group, seen, best) for group in groups), key=lambda row: -row.gain_us)


def _row(group: list[Call], seen: Observation, best: dict[int, float]) -> OperatorReading:
    time_us = sum(call.time_us for call in group)
    first = group[0].operator
    return OperatorReading(
        name=first.name,
        module=first.module,
        calls=len(group),
        time_us=time_us,
        share=time_us / seen.time_us if seen.time_us else 0.0,
        floor_us=sum(call.floor.time_us for call in group),
        regime=_usual_regime(group),
        bytes=sum(call.operator.work.total_bytes for call in group),
        flops=sum(call.operator.work.total_flops for call in group),
        gain_us=sum(call.time_us - best[call.operator.index] for call in group),
        kind=first.kind,
    )


def _modules(seen: Observation, best: dict[int, float]) -> tuple[ModuleReading, ...]:
    """Modules by what could be gained in them, the most first; none when no call came from a module."""
    groups = _grouped(seen.calls, lambda c: c.operator.module)
    if all(not group[0].operator.module for group in groups):
        return ()
    readings = [
        ModuleReading(
            module=group[0].operator.module,
            calls=len(group),
            time_us=(time_us := sum(call.time_us for call in group)),
            share=time_us / seen.time_us if seen.time_us else 0.0,
            gain_us=sum(call.time_us - best[call.operator.index] for call in group),
            regime=_usual_regime(group),
        )
        for group in groups
    ]
    return tuple(sorted(readings, key=lambda reading: -reading.gain_us))


def _usual_regime(group: list[Call]) -> Regime:
    spent: dict[Regime, float] = {}
    for call in group:
        spent[call.regime] = spent.get(call.regime, 0.0) + call.net_us
    return max(spent, key=lambda regime: spent[regime])


def _grouped(calls: tuple[Call, ...] | list[Call], key: Callable[[Call], Hashable]) -> list[list[Call]]:
    groups: dict[Hashable, list[Call]] = {}
    for call in calls:
        groups.setdefault(key(call), []).append(call)
    return list(groups.values())
