"""The regime of a program, its one-line summary (one function per regime), and the evidence for it."""

from __future__ import annotations

from kernelwright.core.diagnosis import MetricEvidence, Regime
from kernelwright.core.units import bandwidth_text, bytes_text, number_text, percent_text, rate_text, time_text
from kernelwright.diagnosis.observation import (
    NEAR_ROOFLINE,
    SATURATED,
    Observation,
    TimedOperator,
    has_idle_threads,
    regime_shares,
    roofline_efficiency,
    special_function_us,
)

MIN_COVERAGE = 0.8


def classify_regime(observation: Observation) -> Regime:
    """The regime with the largest share of the time; undetermined if too much of the work is unknown."""
    if observation.work.coverage < MIN_COVERAGE or not observation.operators:
        return "undetermined"
    spent = regime_shares(observation)
    return max(spent, key=lambda regime: spent[regime])


def summarize(observation: Observation, regime: Regime) -> str:
    """One-line summary of what limits the program, with numbers."""
    calls = [call for call in observation.operators if call.regime == regime]
    summarize_regime = {
        "memory-bound": _summarize_memory,
        "compute-bound": _summarize_compute,
        "overhead-bound": _summarize_overhead,
        "latency-bound": _summarize_latency,
        "undetermined": _summarize_undetermined,
    }[regime]
    return f"{regime}: {summarize_regime(observation, calls)}{_summarize_faults(observation)}"


def _summarize_memory(observation: Observation, calls: list[TimedOperator]) -> str:
    written, compulsory = observation.work.as_written.total_bytes, observation.work.fused.total_bytes
    speed = _bandwidth_gb_s(calls)
    moved = f"it moves {bytes_text(written)}"
    if written > 1.1 * compulsory:
        moved += f" ({bytes_text(compulsory)} if fused)"
    if observation.is_predicted:
        return f"{moved}, limited by memory bandwidth"
    levels = list(dict.fromkeys(call.floor.limiter for call in sorted(calls, key=lambda call: -call.time_us)))
    return (
        f"{moved}, at {percent_text(roofline_efficiency(calls))} of the measured {' and '.join(levels)} bandwidth "
        f"({bandwidth_text(speed)} reached)"
    )


def _summarize_compute(observation: Observation, calls: list[TimedOperator]) -> str:
    special_us_all = sum(special_function_us(observation.machine, call.operator.work) for call in calls)
    if special_us_all > sum(call.floor.time_us for call in calls):
        return _summarize_special(calls, special_us_all)
    flops = sum(call.operator.work.total_flops for call in calls)
    rate = flops / max(sum(c.net_us for c in calls), 1e-9) / 1e6
    limiter = max(calls, key=lambda c: c.time_us).floor.limiter
    if observation.is_predicted:
        return f"limited by {flops / 1e9:,.1f} GFLOP at the {limiter} rate"
    share = percent_text(roofline_efficiency(calls))
    return f"{flops / 1e9:,.1f} GFLOP at {rate_text(rate)}, {share} of the measured {limiter} rate"


def _summarize_special(calls: list[TimedOperator], special_us_all: float) -> str:
    names = ", ".join(dict.fromkeys(call.operator.name for call in calls))
    net_us = sum(call.net_us for call in calls)
    return (
        f"{names} spends {percent_text(min(special_us_all / net_us, 1.0))} of its time in special functions at "
        f"torch's rate; its memory traffic needs {time_text(sum(call.floor.memory_us for call in calls))}"
    )


def _summarize_overhead(observation: Observation, calls: list[TimedOperator]) -> str:
    launches = [call for call in observation.operators if call.operator.kind != "view"]
    each_us = observation.time_us / max(len(observation.operators), 1)
    work_us = time_text(observation.as_written_floor_us)
    if observation.machine.device == "cuda":
        share = percent_text(_idle_share(observation))
        return (
            f"the GPU idles {share} of the time; {number_text(len(launches), 'launch')} with a total floor of {work_us}"
        )
    return (
        f"{number_text(len(observation.operators), 'call')} of {time_text(each_us)} each, with a "
        f"total floor of {work_us}"
    )


def _idle_share(observation: Observation) -> float:
    return observation.idle_us / observation.time_us if observation.time_us else 0.0


def _summarize_latency(observation: Observation, calls: list[TimedOperator]) -> str:
    worst = max(calls, key=lambda c: c.net_us - c.floor.time_us)
    return (
        f"{worst.operator.name} takes {time_text(worst.net_us)}, its {worst.floor.limiter} floor is "
        f"{time_text(worst.floor.time_us)}: {percent_text(roofline_efficiency([worst]))} of the nearest ceiling, "
        f"{_summarize_parallelism(observation, worst)}"
    )


def _summarize_parallelism(observation: Observation, call: TimedOperator) -> str:
    if has_idle_threads(observation.machine, call.busy_threads):
        return f"with {call.busy_threads:.1f} of {observation.machine.threads} threads busy"
    return "with too little parallelism"


def _summarize_undetermined(observation: Observation, calls: list[TimedOperator]) -> str:
    unknown = sorted({c.operator.name for c in observation.operators if not c.operator.flops_known})
    names = ", ".join(unknown[:3]) or "no compute operators"
    return f"the work is known for only {percent_text(observation.work.coverage)} of the bytes (unknown: {names})"


def _summarize_faults(observation: Observation) -> str:
    share = observation.fault_us / observation.time_us if observation.time_us else 0.0
    return f"; page faults take another {percent_text(share)}" if share >= 0.05 else ""


def _bandwidth_gb_s(calls: list[TimedOperator]) -> float:
    return sum(c.operator.work.total_bytes for c in calls) / max(sum(c.net_us for c in calls), 1e-9) / 1e3


def collect_evidence(observation: Observation) -> tuple[MetricEvidence, ...]:
    """The metrics behind the regime, each with its threshold."""
    source = "datasheet" if observation.is_predicted else "operator times, counted work, measured ceilings"
    rows = [
        MetricEvidence(
            metric=f"time in {name} calls",
            value=percent_text(part),
            threshold="the largest determines the regime",
            source=source,
        )
        for name, part in regime_shares(observation).items()
        if part >= 0.005
    ]
    rows.append(
        MetricEvidence(
            metric="coverage of the work",
            value=percent_text(observation.work.coverage),
            threshold=f"at least {percent_text(MIN_COVERAGE)}",
            source="formulas of the operators",
        )
    )
    busy = [call for call in observation.operators if call.operator.kind != "view"]
    if busy and not observation.is_predicted:
        rows.append(
            MetricEvidence(
                metric="floor of the calls over their time",
                value=percent_text(roofline_efficiency(busy)),
                threshold=f"near a ceiling: {percent_text(NEAR_ROOFLINE)}, saturated: {percent_text(SATURATED)}",
                source="measured ceilings",
            )
        )
    if observation.fault_us:
        rows.append(
            MetricEvidence(
                metric="page faults",
                value=f"{time_text(observation.fault_us)} of {time_text(observation.time_us)}",
                threshold="shown from 5 %",
                source="getrusage around each call, cost per MiB measured on this machine",
            )
        )
    if observation.machine.device == "cuda" and not observation.is_predicted:
        rows.append(
            MetricEvidence(
                metric="device idle",
                value=percent_text(_idle_share(observation)),
                threshold="counts as overhead",
                source="CUDA events against the sum of kernel times",
            )
        )
    return tuple(rows)
