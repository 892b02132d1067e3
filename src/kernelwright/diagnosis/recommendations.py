"""Recommendations, each with the predicted time of the whole program.

Each rule is one function that returns its recommendations for an observation. Gains are not additive.
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
"""Recommendations with a smaller share of the total time as gain are not reported."""
NEAR_FLOOR_FACTOR = 1.25
"""Within this factor of the fused floor no further optimization is recommended."""
BATCH_SIZE = 8
REORDERING_OPS = ("clone", "contiguous", "copy", "copy_")
WELL_WRITTEN_FACTOR = 1.1
"""Time over floor of one well-optimized pass: 1.05 to 1.15 on an H200 (cross-entropy, softmax, pointwise)."""
SPECIAL_FUNCTION_FACTOR = 0.5
"""Cost of special functions in a user-defined pass relative to torch's: 0.5 in softmax.cpp and in Inductor (AMD
EPYC). They do not overlap with page faults: both use the CPU cores."""
SPLIT_MAX_EFFICIENCY = 0.6
CALL_COST_DISPATCHES = 8
"""Host cost of calling one compiled function from Python on a CPU, with its output's allocation, in bare dispatches:
6.3 us for tiny_chain.cpp with 256 elements, at 0.69 us per dispatch on an AMD EPYC."""
CALL_COST_LAUNCHES = 3
"""The same on CUDA, in bare eager launches: 16.7 us for a Triton kernel, at 5.0 us per launch on an H200's host."""


def recommend(observation: Observation) -> tuple[Recommendation, ...]:
    """All recommendations above the gain threshold, largest gain first; if there are none, the one to stop."""
    candidates = [one for rule in RECOMMENDATION_RULES for one in rule(observation)]
    reported = [one for one in candidates if one.predicted_us <= (1 - MIN_GAIN) * observation.time_us]
    reported.sort(key=lambda one: one.predicted_us)
    return tuple(reported) or (_recommend_stop(observation),)


def recommend_fusion(observation: Observation) -> list[Recommendation]:
    """Fuse adjacent operators that only pass values to each other into one pass over the inputs."""
    by_index = {call.operator.index: call for call in observation.operators}
    parts = [(group, _fused_us(observation, group, by_index)) for group in fusion_groups(observation.work)]
    gains = [
        (group, _time_with_gaps_us([by_index[op.index] for op in group], observation) - after) for group, after in parts
    ]
    gains = [(group, gain) for group, gain in gains if gain > 0]
    if not gains:
        return []
    total = sum(gain for _, gain in gains)
    operators = [op for group, _ in gains for op in group]
    return [
        Recommendation(
            kind="fuse",
            action=_describe_fusion(gains, observation),
            predicted_us=max(observation.time_us - total, observation.fused_floor.time_us),
            reason=f"they move {bytes_text(sum(op.work.total_bytes for op in operators))}; one pass per group moves "
            f"{bytes_text(sum(fused_work(group, observation.work).total_bytes for group, _ in gains))}",
            operators=tuple(op.index for op in operators),
        )
    ]


def _describe_fusion(gains: Sequence[tuple[Sequence[Operator], float]], observation: Observation) -> str:
    if len(gains) == 1:
        group = gains[0][0]
        without_views = [op for op in observation.work.operators if op.kind != "view"]
        return (
            f"fuse all {len(group)} operators into one pass"
            if len(group) == len(without_views)
            else f"fuse {_join_names(group)} into one pass"
        )
    largest = max(gains, key=lambda pair: pair[1])[0]
    return f"fuse {len(gains)} groups of adjacent operators, each into one pass (the largest: {_join_names(largest)})"


def attainable_us(observation: Observation) -> dict[int, float]:
    """Attainable time of each call, or of its part of a fused pass; at most its current time."""
    best = {call.operator.index: min(call.floor.time_us, call.time_us) for call in observation.operators}
    by_index = {call.operator.index: call for call in observation.operators}
    for group in fusion_groups(observation.work):
        now = sum(by_index[op.index].time_us for op in group)
        share = min(_fused_us(observation, group, by_index) / now, 1.0) if now else 1.0
        best |= {op.index: min(best[op.index], by_index[op.index].time_us * share) for op in group}
    return best


def _join_names(group: Sequence[Operator]) -> str:
    names = [op.name for op in group]
    return " + ".join(names) if len(names) <= 5 else f"{' + '.join(names[:3])} + {len(names) - 3} more"


def _fused_us(observation: Observation, group: tuple[Operator, ...], by_index: dict[int, TimedOperator]) -> float:
    """Time of one well-optimized kernel for the group, with the page faults of the outputs that it still allocates."""
    work = fused_work(group, observation.work)
    cold_bytes = min(sum(by_index[op.index].cold_read_bytes for op in group), work.bytes_read)
    floor_us = floor(work, observation.machine, cold_bytes=cold_bytes).time_us
    faulted = any(by_index[op.index].fault_us > 0 for op in group)
    faults = (observation.machine.page_fault_us_per_mib or 0.0) * work.bytes_written / 2**20 if faulted else 0.0
    pass_us = max(
        floor_us * WELL_WRITTEN_FACTOR, SPECIAL_FUNCTION_FACTOR * special_function_us(observation.machine, work)
    )
    return max(pass_us + faults, min_call_us(observation.machine))


def _time_with_gaps_us(calls: Sequence[TimedOperator], observation: Observation) -> float:
    """Time of calls with their share of the time between calls: idle time and unattributed page faults."""
    launched = sum(call.operator.kind != "view" for call in observation.operators) or 1
    return (
        sum(call.time_us for call in calls)
        + (observation.idle_us + observation.unattributed_fault_us) * len(calls) / launched
    )


def min_call_us(machine: Machine) -> float:
    """Minimum host cost of one call of a user-defined compiled function."""
    if machine.device == "cuda":
        return CALL_COST_LAUNCHES * (machine.launch_us or ASSUMED_LAUNCH_US)
    return CALL_COST_DISPATCHES * (machine.dispatch_us or 1.0)


def recommend_cuda_graph(observation: Observation) -> list[Recommendation]:
    """Capture the launches in a CUDA graph if the GPU idles between them."""
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
    """Split the long dimension of a call that is far below every ceiling, for more parallelism."""
    slow = [
        c for c in observation.operators if c.regime == "latency-bound" and _has_idle_capacity(observation.machine, c)
    ]
    slow = [c for c in slow if c.operator.kind in ("scan", "reduction", "gather") or _is_skinny(c)]
    if not slow:
        return []
    worst = max(slow, key=lambda call: call.net_us - call.floor.time_us)
    scan = worst.operator.kind == "scan"  # a blocked scan reads its input twice and takes three launches
    after = worst.floor.time_us * (1.5 if scan else 1.0) * WELL_WRITTEN_FACTOR + worst.fault_us
    after = (
        max(after, (3 if scan else 1) * min_call_us(observation.machine))
        if observation.machine.device == "cuda"
        else after
    )
    # Less idle time is within the difference of the two clocks.
    idle_us = observation.idle_us if observation.idle_us > MIN_GAIN * observation.time_us else 0.0
    others_us = (
        sum(call.time_us for call in observation.operators if call is not worst)
        + idle_us
        + observation.unattributed_fault_us
    )
    return [
        Recommendation(
            kind="split",
            action=f"split the long dimension of {worst.operator.name} into blocks that run in parallel",
            predicted_us=others_us + after,
            reason=(
                f"{worst.operator.name} {worst.operator.shapes} is at "
                f"{percent_text(roofline_efficiency([worst]))} of its ceiling"
            ),
            operators=(worst.operator.index,),
        )
    ]


def _has_idle_capacity(machine: Machine, call: TimedOperator) -> bool:
    """Whether a call has idle threads, or low efficiency with an unknown number of busy threads."""
    if has_idle_threads(machine, call.busy_threads):
        return True
    # In a scan, busy threads may only wait for strided reads.
    threads_known = call.busy_threads is not None and call.operator.kind != "scan"
    return roofline_efficiency([call]) < SPLIT_MAX_EFFICIENCY and not threads_known


def _is_skinny(call: TimedOperator) -> bool:
    """Whether a matrix operation would be memory-bound with enough parallelism, such as one row times a matrix."""
    return call.operator.kind == "matrix" and call.floor.memory_us > call.floor.compute_us


def recommend_lower_precision(observation: Observation) -> list[Recommendation]:
    """Use bfloat16 instead of float32 for matrix operations: half the bytes, and a faster unit if there is one."""
    wide = [
        c for c in observation.operators if c.operator.kind in ("matrix", "convolution", "attention") and _is_float32(c)
    ]
    if not wide or sum(c.time_us for c in wide) < 0.3 * observation.time_us:
        return []
    gain = sum(c.time_us - _bfloat16_us(c, observation.machine) for c in wide)
    return [
        Recommendation(
            kind="dtype",
            action="use bfloat16 for the matrix operations, if its accuracy is sufficient",
            predicted_us=observation.time_us - gain,
            reason="half the bytes and the rate of the bfloat16 unit; this changes the result",
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
    """Batch inputs: a matrix operation bound by reading its weights processes more rows in the same time."""
    waiting = [c for c in observation.operators if c.operator.kind == "matrix" and c.regime == "memory-bound"]
    if sum(c.time_us for c in waiting) < 0.5 * observation.time_us:
        return []
    return [
        Recommendation(
            kind="batch",
            action=f"batch {BATCH_SIZE} inputs per call: about the same time for all (the predicted time is for one)",
            predicted_us=observation.time_us / BATCH_SIZE,
            reason="the weights are read once per call, for any number of rows",
        )
    ]


def recommend_layout(observation: Observation) -> list[Recommendation]:
    """Avoid copies that only reorder values: store them in the order in which they are read."""
    fused = {op.index for group in fusion_groups(observation.work) for op in group}
    copies = [c for c in observation.operators if c.operator.name in REORDERING_OPS and c.operator.index not in fused]
    if not copies:
        return []
    names = ", ".join(dict.fromkeys(call.operator.name for call in copies))
    return [
        Recommendation(
            kind="layout",
            action=f"avoid the copies ({names}): store the values in the order in which they are read",
            predicted_us=observation.time_us - _time_with_gaps_us(copies, observation),
            reason=f"{bytes_text(sum(c.operator.work.total_bytes for c in copies))} are moved only to be reordered",
            operators=tuple(call.operator.index for call in copies),
        )
    ]


def recommend_memory_reuse(observation: Observation) -> list[Recommendation]:
    """Keep freed memory in the process: returning it to the system costs page faults on every call."""
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
    ratio = observation.time_us / observation.fused_floor.time_us if observation.fused_floor.time_us else 1.0
    reason = (
        f"it runs at {ratio:.2f} times its floor" if ratio <= NEAR_FLOOR_FACTOR else "no rule predicts a gain of 5 %"
    )
    return Recommendation(kind="stop", action=f"stop: {reason}", predicted_us=observation.time_us)


RECOMMENDATION_RULES: tuple[Callable[[Observation], list[Recommendation]], ...] = (
    recommend_fusion,
    recommend_cuda_graph,
    recommend_split,
    recommend_lower_precision,
    recommend_batching,
    recommend_layout,
    recommend_memory_reuse,
)
