"""The regime of a whole program in one sentence, with the evidence it stands on. One function a regime."""

from __future__ import annotations

from kernelwright.core.records import Evidence, Regime
from kernelwright.core.units import bandwidth_text, bytes_text, number_text, percent_text, rate_text, time_text
from kernelwright.diagnosis.observation import (
    NEAR_ROOF,
    SATURATED,
    Call,
    Observation,
    idle_threads,
    reach,
    shares,
    special_us,
)

LEAST_COVERAGE = 0.8


def regime_of(seen: Observation) -> Regime:
    """The regime in which most of the time is spent; undetermined when too much of the work is unknown."""
    if seen.work.coverage < LEAST_COVERAGE or not seen.calls:
        return "undetermined"
    spent = shares(seen)
    return max(spent, key=lambda regime: spent[regime])


def sentence(seen: Observation, regime: Regime) -> str:
    """What the program waits on, in ordinary words with numbers."""
    calls = [call for call in seen.calls if call.regime == regime]
    say = {
        "memory-bound": _memory,
        "compute-bound": _compute,
        "overhead-bound": _overhead,
        "latency-bound": _latency,
        "undetermined": _undetermined,
    }[regime]
    return f"{regime}: {say(seen, calls)}{_faults(seen)}"


def _memory(seen: Observation, calls: list[Call]) -> str:
    written, least = seen.work.as_written.total_bytes, seen.work.fused.total_bytes
    speed = _bandwidth_gb_s(calls)
    moved = f"it moves {bytes_text(written)}"
    if written > 1.1 * least:
        moved += f" where {bytes_text(least)} would do"
    if seen.predicted:
        return f"{moved}, and the memory is what limits it"
    levels = list(dict.fromkeys(call.floor.limiter for call in sorted(calls, key=lambda call: -call.time_us)))
    given = f"{' and '.join(levels)} {'gives' if len(levels) == 1 else 'give'}"
    return f"{moved}, at {percent_text(reach(calls))} of what {given} here ({bandwidth_text(speed)} reached)"


def _compute(seen: Observation, calls: list[Call]) -> str:
    special_us_all = sum(special_us(seen.machine, call.operator.work) for call in calls)
    if special_us_all > sum(call.floor.time_us for call in calls):
        return _special(calls, special_us_all)
    flops = sum(call.operator.work.total_flops for call in calls)
    rate = flops / max(sum(c.net_us for c in calls), 1e-9) / 1e6
    limiter = max(calls, key=lambda c: c.time_us).floor.limiter
    if seen.predicted:
        return f"{flops / 1e9:,.1f} GFLOP in {limiter} is what limits it"
    share = percent_text(reach(calls))
    return f"{flops / 1e9:,.1f} GFLOP at {rate_text(rate)}, {share} of the measured {limiter} rate"


def _special(calls: list[Call], special_us_all: float) -> str:
    names = ", ".join(dict.fromkeys(call.operator.name for call in calls))
    net_us = sum(call.net_us for call in calls)
    return (
        f"{names} spends {percent_text(min(special_us_all / net_us, 1.0))} of its time in special functions at the "
        f"rate of torch's own, where memory would need {time_text(sum(call.floor.memory_us for call in calls))}"
    )


def _overhead(seen: Observation, calls: list[Call]) -> str:
    real = [call for call in seen.calls if call.operator.kind != "view"]
    each_us = seen.time_us / max(len(seen.calls), 1)
    work_us = time_text(seen.as_written_us)
    if seen.machine.device == "cuda":
        share = percent_text(_idle_share(seen))
        return (
            f"the GPU idles {share} of the time; {number_text(len(real), 'launch')} whose work needs {work_us} in all"
        )
    return f"{number_text(len(seen.calls), 'call')} of {time_text(each_us)} each, whose work needs {work_us} in all"


def _idle_share(seen: Observation) -> float:
    return seen.idle_us / seen.time_us if seen.time_us else 0.0


def _latency(seen: Observation, calls: list[Call]) -> str:
    worst = max(calls, key=lambda c: c.net_us - c.floor.time_us)
    return (
        f"{worst.operator.name} takes {time_text(worst.net_us)} where {worst.floor.limiter} needs "
        f"{time_text(worst.floor.time_us)}: at {percent_text(reach([worst]))} of the nearest ceiling, "
        f"{_in_flight(seen, worst)}"
    )


def _in_flight(seen: Observation, call: Call) -> str:
    if idle_threads(seen.machine, call.threads):
        return f"with {call.threads:.1f} of {seen.machine.threads} threads busy"
    return "too little is in flight"


def _undetermined(seen: Observation, calls: list[Call]) -> str:
    unknown = sorted({c.operator.name for c in seen.calls if not c.operator.known})
    names = ", ".join(unknown[:3]) or "nothing that computes"
    return f"the work of only {percent_text(seen.work.coverage)} of the bytes is known ({names}), so no verdict"


def _faults(seen: Observation) -> str:
    share = seen.fault_us / seen.time_us if seen.time_us else 0.0
    return f"; page faults take another {percent_text(share)}" if share >= 0.05 else ""


def _bandwidth_gb_s(calls: list[Call]) -> float:
    return sum(c.operator.work.total_bytes for c in calls) / max(sum(c.net_us for c in calls), 1e-9) / 1e3


def evidence(seen: Observation) -> tuple[Evidence, ...]:
    """The numbers behind the regime, each with the threshold it was held against."""
    source = "datasheet" if seen.predicted else "operator times, counted work, measured ceilings"
    rows = [
        Evidence(
            metric=f"time in {name} calls",
            value=percent_text(part),
            threshold="the largest names the regime",
            source=source,
        )
        for name, part in shares(seen).items()
        if part >= 0.005
    ]
    rows.append(
        Evidence(
            metric="coverage of the work",
            value=percent_text(seen.work.coverage),
            threshold=f"at least {percent_text(LEAST_COVERAGE)}",
            source="formulas of the operators",
        )
    )
    busy = [call for call in seen.calls if call.operator.kind != "view"]
    if busy and not seen.predicted:
        rows.append(
            Evidence(
                metric="floor of the calls over their time",
                value=percent_text(reach(busy)),
                threshold=f"near a roof from {percent_text(NEAR_ROOF)}, saturated from {percent_text(SATURATED)}",
                source="measured ceilings",
            )
        )
    if seen.fault_us:
        rows.append(
            Evidence(
                metric="page faults",
                value=f"{time_text(seen.fault_us)} of {time_text(seen.time_us)}",
                threshold="shown from 5 %",
                source="getrusage around each call, cost per MiB measured on this machine",
            )
        )
    if seen.machine.device == "cuda" and not seen.predicted:
        rows.append(
            Evidence(
                metric="device idle",
                value=percent_text(_idle_share(seen)),
                threshold="counts as overhead",
                source="CUDA events against the sum of kernel times",
            )
        )
    return tuple(rows)
