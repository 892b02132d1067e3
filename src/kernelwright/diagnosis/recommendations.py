"""What to do next, each move with the time that the whole program should then take.

One function a rule: it looks at an observation and gives the moves it knows, or none. Gains are not additive.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kernelwright.core.diagnosis import Recommendation
from kernelwright.core.machine import Machine
from kernelwright.core.units import bytes_text, percent_text
from kernelwright.core.work import Operator, Work
from kernelwright.diagnosis.observation import (
    ASSUMED_LAUNCH_US,
    Observation,
    TimedOperator,
    has_idle_threads,
    roofline_efficiency,
    special_function_us,
)
from kernelwright.machines.floor import floor
from kernelwright.work.fusion import fused_work, fusion_groups

MIN_GAIN = 0.05
"""A move that promises less of the whole time than this is not worth a line."""
NEAR_FLOOR_FACTOR = 1.25
"""Within this factor of the fused floor there is nothing left to say but stop."""
BATCH_SIZE = 8
REORDERING_OPS = ("clone", "contiguous", "copy", "copy_")
WELL_WRITTEN_FACTOR = 1.1
"""Time over floor of one pass that is written well: 1.05 to 1.15 on an H200 (cross-entropy, softmax, pointwise)."""
SPECIAL_FUNCTION_FACTOR = 0.5
"""What special functions cost in a pass of one's own beside torch's: 0.5 in softmax.cpp and in Inductor's (AMD EPYC).
Nothing of it hides page faults: both are the processor's work."""
SPLIT_MAX_EFFICIENCY = 0.6
CALL_COST_DISPATCHES = 8
"""What calling one compiled function from Python costs a CPU's host, its output allocated, in bare dispatches: 6.3 us
for tiny_chain.cpp beside a dispatch of 0.69 us on an AMD EPYC, with 256 numbers to compute."""
CALL_COST_LAUNCHES = 3
"""The same on CUDA, in bare eager launches: 16.7 us for a Triton kernel beside 5.0 us, on the host of an H200."""


def recommend(observation: Observation) -> tuple[Recommendation, ...]:
    """All moves worth making, the largest gain first, or the one that says stop."""
    found = [move for rule in RECOMMENDATION_RULES for move in rule(observation)]
    worthy = [m for m in found if m.predicted_us <= (1 - MIN_GAIN) * observation.time_us]
    worthy.sort(key=lambda move: move.predicted_us)
    return tuple(worthy) or (_recommend_stop(observation),)


def recommend_fusion(observation: Observation) -> list[Recommendation]:
    """Neighbouring operators that only hand values to each other become one pass over the inputs."""
    by_index = {call.operator.index: call for call in observation.operators}
    parts = [(run, _fused_us(observation, run, by_index)) for run in fusion_groups(observation.work)]
    gains = [(run, _time_with_gaps_us([by_index[op.index] for op in run], observation) - after) for run, after in parts]
    gains = [(run, gain) for run, gain in gains if gain > 0]
    if not gains:
        return []
    total = sum(gain for _, gain in gains)
    operators = [op for run, _ in gains for op in run]
    return [
        Recommendation(
            kind="fuse",
            action=_describe_fusion(gains, observation),
            predicted_us=max(observation.time_us - total, observation.fused_floor.time_us),
            reason=f"{bytes_text(sum(op.work.total_bytes for op in operators))} move now; one pass a group moves "
            f"{bytes_text(sum(fused_work(run, observation.work).total_bytes for run, _ in gains))}",
            operators=tuple(op.index for op in operators),
        )
    ]


def _describe_fusion(gains: Sequence[tuple[Sequence[Operator], float]], observation: Observation) -> str:
    if len(gains) == 1:
        run = gains[0][0]
        real = [op for op in observation.work.operators if op.kind != "view"]
        return (
            f"fuse all {len(run)} operators into one pass"
            if len(run) == len(real)
            else f"fuse {_join_names(run)} into one pass"
        )
    worst = max(gains, key=lambda pair: pair[1])[0]
    return f"fuse {len(gains)} groups of neighbours, each into one pass (the largest: {_join_names(worst)})"


def attainable_us(observation: Observation) -> dict[int, float]:
    """For each call the time that it, or its part of a fused pass, could take; never more than it takes now."""
    best = {call.operator.index: min(call.floor.time_us, call.time_us) for call in observation.operators}
    by_index = {call.operator.index: call for call in observation.operators}
    for run in fusion_groups(observation.work):
        now = sum(by_index[op.index].time_us for op in run)
        share = min(_fused_us(observation, run, by_index) / now, 1.0) if now else 1.0
        best |= {op.index: min(best[op.index], by_index[op.index].time_us * share) for op in run}
    return best


def _join_names(run: Sequence[Operator]) -> str:
    names = [op.name for op in run]
    return " + ".join(names) if len(names) <= 5 else f"{' + '.join(names[:3])} + {len(names) - 3} more"


def _fused_us(observation: Observation, group: tuple[Operator, ...], by_index: dict[int, TimedOperator]) -> float:
    """One kernel for the group, written well, with the page faults of what it still has to allocate."""
    work = fused_work(group, observation.work)
    cold_bytes = min(sum(by_index[op.index].cold_read_bytes for op in group), work.bytes_read)
    least = floor(work, observation.machine, cold_bytes=cold_bytes).time_us
    faulted = any(by_index[op.index].fault_us > 0 for op in group)
    faults = (observation.machine.page_fault_us_per_mib or 0.0) * work.bytes_written / 2**20 if faulted else 0.0
    least = max(least * WELL_WRITTEN_FACTOR, SPECIAL_FUNCTION_FACTOR * special_function_us(observation.machine, work))
    return max(least + faults, min_call_us(observation.machine))


def _time_with_gaps_us(calls: Sequence[TimedOperator], observation: Observation) -> float:
    """Time of some calls with their part of what lies between calls: idle time, page faults of nobody in particular."""
    launched = sum(call.operator.kind != "view" for call in observation.operators) or 1
    return (
        sum(call.time_us for call in calls)
        + (observation.idle_us + observation.unattributed_fault_us) * len(calls) / launched
    )


def min_call_us(machine: Machine) -> float:
    """The least that one call of a person's own compiled function costs the host."""
    if machine.device == "cuda":
        return CALL_COST_LAUNCHES * (machine.launch_us or ASSUMED_LAUNCH_US)
    return CALL_COST_DISPATCHES * (machine.dispatch_us or 1.0)


def recommend_cuda_graph(observation: Observation) -> list[Recommendation]:
    """A GPU that idles between launches: record them once, replay them in one launch."""
    if observation.machine.device != "cuda" or observation.idle_us < 0.2 * observation.time_us:
        return []
    gap = observation.machine.graph_launch_us or 1.0
    launched = [call for call in observation.operators if call.time_us > 0 and call.operator.kind != "view"]
    after = sum(max(call.time_us, gap) for call in launched) + (observation.machine.launch_us or ASSUMED_LAUNCH_US)
    return [
        Recommendation(
            kind="graph",
            action=f"capture the {len(launched)} launches in a CUDA graph"
            if len(launched) > 1
            else "capture it in a CUDA graph",
            predicted_us=after,
            reason=f"the GPU idles {percent_text(observation.idle_us / observation.time_us)} of the time",
        )
    ]


def recommend_split(observation: Observation) -> list[Recommendation]:
    """One call far from every ceiling: cut its long dimension so that more is in flight."""
    slow = [
        c for c in observation.operators if c.regime == "latency-bound" and _has_idle_capacity(observation.machine, c)
    ]
    slow = [c for c in slow if c.operator.kind in ("scan", "reduction", "gather") or _is_skinny(c)]
    if not slow:
        return []
    worst = max(slow, key=lambda call: call.net_us - call.floor.time_us)
    scan = worst.operator.kind == "scan"  # in blocks it reads its input twice and takes three launches
    after = worst.floor.time_us * (1.5 if scan else 1.0) * WELL_WRITTEN_FACTOR + worst.fault_us
    after = (
        max(after, (3 if scan else 1) * min_call_us(observation.machine))
        if observation.machine.device == "cuda"
        else after
    )
    idle_us = (
        observation.idle_us if observation.idle_us > MIN_GAIN * observation.time_us else 0.0
    )  # less is two clocks that differ
    others_us = (
        sum(call.time_us for call in observation.operators if call is not worst)
        + idle_us
        + observation.unattributed_fault_us
    )
    return [
        Recommendation(
            kind="split",
            action=f"split the long dimension of {worst.operator.name} into blocks that run side by side",
            predicted_us=others_us + after,
            reason=(
                f"{worst.operator.name} {worst.operator.shapes} is at "
                f"{percent_text(roofline_efficiency([worst]))} of its ceiling"
            ),
            operators=(worst.operator.index,),
        )
    ]


def _has_idle_capacity(machine: Machine, call: TimedOperator) -> bool:
    """Whether there is something left to put to work: idle threads, or what nobody could look at."""
    if has_idle_threads(machine, call.busy_threads):
        return True
    looked_at = call.busy_threads is not None and call.operator.kind != "scan"  # threads can be busy walking in strides
    return roofline_efficiency([call]) < SPLIT_MAX_EFFICIENCY and not looked_at


def _is_skinny(call: TimedOperator) -> bool:
    """A product that would wait on memory if enough of it were in flight, such as one row times a matrix."""
    return call.operator.kind == "matrix" and call.floor.memory_us > call.floor.compute_us


def recommend_lower_precision(observation: Observation) -> list[Recommendation]:
    """Products in float32 where bfloat16 is good enough: fewer bytes, and the faster unit where there is one."""
    wide = [
        c for c in observation.operators if c.operator.kind in ("matrix", "convolution", "attention") and _is_float32(c)
    ]
    if not wide or sum(c.time_us for c in wide) < 0.3 * observation.time_us:
        return []
    gain = sum(c.time_us - _bfloat16_us(c, observation.machine) for c in wide)
    return [
        Recommendation(
            kind="dtype",
            action="do the products in bfloat16, if its accuracy is enough",
            predicted_us=observation.time_us - gain,
            reason="half the bytes, and the rate of its unit: this changes the result",
            operators=tuple(c.operator.index for c in wide),
        )
    ]


def _is_float32(call: TimedOperator) -> bool:
    return "matrix/float32" in call.operator.work.flops


def _bfloat16_us(call: TimedOperator, machine: Machine) -> float:
    work = call.operator.work
    flops = {unit.replace("float32", "bfloat16"): count for unit, count in work.flops.items()}
    halved = Work(flops=flops, bytes_read=work.bytes_read // 2, bytes_written=work.bytes_written // 2)
    if "bfloat16" not in machine.matrix_tflop_s:
        return call.time_us
    slack = max(call.net_us / max(call.floor.time_us, 1e-9), 1.0)
    return min(call.time_us, floor(halved, machine, cold_bytes=call.cold_read_bytes // 2).time_us * slack)


def recommend_batching(observation: Observation) -> list[Recommendation]:
    """A product that waits on its weights serves more rows in the same time."""
    waiting = [c for c in observation.operators if c.operator.kind == "matrix" and c.regime == "memory-bound"]
    if sum(c.time_us for c in waiting) < 0.5 * observation.time_us:
        return []
    return [
        Recommendation(
            kind="batch",
            action=f"batch {BATCH_SIZE} inputs a call: about the same time for all of them (the figure is for one)",
            predicted_us=observation.time_us / BATCH_SIZE,
            reason="the weights are read once a call, however many rows use them",
        )
    ]


def recommend_layout(observation: Observation) -> list[Recommendation]:
    """Copies that only bring values into another order: keep the order that their reader wants."""
    fused = {op.index for run in fusion_groups(observation.work) for op in run}
    copies = [c for c in observation.operators if c.operator.name in REORDERING_OPS and c.operator.index not in fused]
    if not copies:
        return []
    names = ", ".join(dict.fromkeys(call.operator.name for call in copies))
    return [
        Recommendation(
            kind="layout",
            action=f"do without the copies ({names}): lay the values out as their reader wants them",
            predicted_us=observation.time_us - _time_with_gaps_us(copies, observation),
            reason=f"{bytes_text(sum(c.operator.work.total_bytes for c in copies))} move only to change their order",
            operators=tuple(call.operator.index for call in copies),
        )
    ]


def recommend_memory_reuse(observation: Observation) -> list[Recommendation]:
    """Memory that is given back and fetched again on every call costs page faults; keep it."""
    if observation.fault_us < MIN_GAIN * observation.time_us:
        return []
    return [
        Recommendation(
            kind="reuse",
            action="keep freed memory in the process",
            predicted_us=observation.time_us - observation.fault_us,
            reason=f"page faults take {percent_text(observation.fault_us / observation.time_us)} of the time",
            command="MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=2147483647 python ...",
        )
    ]


def _recommend_stop(observation: Observation) -> Recommendation:
    times = observation.time_us / observation.fused_floor.time_us if observation.fused_floor.time_us else 1.0
    near = (
        f"it runs at {times:.2f} times its floor"
        if times <= NEAR_FLOOR_FACTOR
        else "no rule knows a move that gains 5 %"
    )
    return Recommendation(kind="stop", action=f"stop: {near}", predicted_us=observation.time_us)


RECOMMENDATION_RULES: tuple[Callable[[Observation], list[Recommendation]], ...] = (
    recommend_fusion,
    recommend_cuda_graph,
    recommend_split,
    recommend_lower_precision,
    recommend_batching,
    recommend_layout,
    recommend_memory_reuse,
)
