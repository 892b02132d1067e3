"""What to do next, each move with the time that the whole program should then take.

One function a rule: it looks at an observation and gives the moves it knows, or none. Gains are not additive.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kernelwright.core.records import Machine, Move, Operator, Work
from kernelwright.core.units import bytes_text, percent_text
from kernelwright.diagnosis.observation import ASSUMED_LAUNCH_US, Call, Observation, idle_threads, reach, special_us
from kernelwright.machines.floor import floor
from kernelwright.work.fusion import fused_work, fusible_runs

LEAST_GAIN = 0.05
"""A move that promises less of the whole time than this is not worth a line."""
CLOSE = 1.25
"""Within this factor of the fused floor there is nothing left to say but stop."""
BATCH = 8
REORDERING = ("clone", "contiguous", "copy", "copy_")
SLACK = 1.1
"""Time over floor of one pass that is written well: 1.05 to 1.15 on an H200 (cross-entropy, softmax, pointwise)."""
OWN_SPECIAL_SHARE = 0.5
"""What special functions cost in a pass of one's own beside torch's: 0.5 in softmax.cpp and in Inductor's (AMD EPYC).
Nothing of it hides page faults: both are the processor's work."""
FARTHEST_REACH = 0.6
CALL_DISPATCHES = 8
"""What calling one compiled function from Python costs a CPU's host, its output allocated, in bare dispatches: 6.3 us
for tiny_chain.cpp beside a dispatch of 0.69 us on an AMD EPYC, with 256 numbers to compute."""
CALL_LAUNCHES = 3
"""The same on CUDA, in bare eager launches: 16.7 us for a Triton kernel beside 5.0 us, on the host of an H200."""


def moves(seen: Observation) -> tuple[Move, ...]:
    """All moves worth making, the largest gain first, or the one that says stop."""
    found = [move for rule in RULES for move in rule(seen)]
    worthy = [m for m in found if m.predicted_us <= (1 - LEAST_GAIN) * seen.time_us]
    worthy.sort(key=lambda move: move.predicted_us)
    return tuple(worthy) or (_stop(seen),)


def fuse(seen: Observation) -> list[Move]:
    """Neighbouring operators that only hand values to each other become one pass over the inputs."""
    by_index = {call.operator.index: call for call in seen.calls}
    parts = [(run, _fused_us(seen, run, by_index)) for run in fusible_runs(seen.work)]
    gains = [(run, _time_us([by_index[op.index] for op in run], seen) - after) for run, after in parts]
    gains = [(run, gain) for run, gain in gains if gain > 0]
    if not gains:
        return []
    total = sum(gain for _, gain in gains)
    operators = [op for run, _ in gains for op in run]
    return [
        Move(
            kind="fuse",
            what=_fuse_text(gains, seen),
            predicted_us=max(seen.time_us - total, seen.fused.time_us),
            why=f"{bytes_text(sum(op.work.total_bytes for op in operators))} move now; one pass a group moves "
            f"{bytes_text(sum(fused_work(run, seen.work).total_bytes for run, _ in gains))}",
            operators=tuple(op.index for op in operators),
        )
    ]


def _fuse_text(gains: Sequence[tuple[Sequence[Operator], float]], seen: Observation) -> str:
    if len(gains) == 1:
        run = gains[0][0]
        real = [op for op in seen.work.operators if op.kind != "view"]
        return (
            f"fuse all {len(run)} operators into one pass"
            if len(run) == len(real)
            else f"fuse {_names(run)} into one pass"
        )
    worst = max(gains, key=lambda pair: pair[1])[0]
    return f"fuse {len(gains)} groups of neighbours, each into one pass (the largest: {_names(worst)})"


def attainable_us(seen: Observation) -> dict[int, float]:
    """For each call the time that it, or its part of a fused pass, could take; never more than it takes now."""
    best = {call.operator.index: min(call.floor.time_us, call.time_us) for call in seen.calls}
    by_index = {call.operator.index: call for call in seen.calls}
    for run in fusible_runs(seen.work):
        now = sum(by_index[op.index].time_us for op in run)
        share = min(_fused_us(seen, run, by_index) / now, 1.0) if now else 1.0
        best |= {op.index: min(best[op.index], by_index[op.index].time_us * share) for op in run}
    return best


def _names(run: Sequence[Operator]) -> str:
    names = [op.name for op in run]
    return " + ".join(names) if len(names) <= 5 else f"{' + '.join(names[:3])} + {len(names) - 3} more"


def _fused_us(seen: Observation, run: tuple[Operator, ...], by_index: dict[int, Call]) -> float:
    """One kernel for the group, written well, with the page faults of what it still has to allocate."""
    work = fused_work(run, seen.work)
    cold_bytes = min(sum(by_index[op.index].cold_bytes for op in run), work.bytes_read)
    least = floor(work, seen.machine, cold_bytes=cold_bytes).time_us
    faulted = any(by_index[op.index].fault_us > 0 for op in run)
    faults = (seen.machine.fault_us_per_mib or 0.0) * work.bytes_written / 2**20 if faulted else 0.0
    least = max(least * SLACK, OWN_SPECIAL_SHARE * special_us(seen.machine, work))
    return max(least + faults, call_us(seen.machine))


def _time_us(calls: Sequence[Call], seen: Observation) -> float:
    """Time of some calls with their part of what lies between calls: idle time, page faults of nobody in particular."""
    launched = sum(call.operator.kind != "view" for call in seen.calls) or 1
    return sum(call.time_us for call in calls) + (seen.idle_us + seen.unplaced_fault_us) * len(calls) / launched


def call_us(machine: Machine) -> float:
    """The least that one call of a person's own compiled function costs the host."""
    if machine.device == "cuda":
        return CALL_LAUNCHES * (machine.launch_us or ASSUMED_LAUNCH_US)
    return CALL_DISPATCHES * (machine.dispatch_us or 1.0)


def graph(seen: Observation) -> list[Move]:
    """A GPU that idles between launches: record them once, replay them in one launch."""
    if seen.machine.device != "cuda" or seen.idle_us < 0.2 * seen.time_us:
        return []
    gap = seen.machine.graph_launch_us or 1.0
    launched = [call for call in seen.calls if call.time_us > 0 and call.operator.kind != "view"]
    after = sum(max(call.time_us, gap) for call in launched) + (seen.machine.launch_us or ASSUMED_LAUNCH_US)
    return [
        Move(
            kind="graph",
            what=f"capture the {len(launched)} launches in a CUDA graph"
            if len(launched) > 1
            else "capture it in a CUDA graph",
            predicted_us=after,
            why=f"the GPU idles {percent_text(seen.idle_us / seen.time_us)} of the time",
        )
    ]


def split(seen: Observation) -> list[Move]:
    """One call far from every ceiling: cut its long dimension so that more is in flight."""
    slow = [c for c in seen.calls if c.regime == "latency-bound" and _has_room(seen.machine, c)]
    slow = [c for c in slow if c.operator.kind in ("scan", "reduction", "gather") or _is_skinny(c)]
    if not slow:
        return []
    worst = max(slow, key=lambda call: call.net_us - call.floor.time_us)
    scan = worst.operator.kind == "scan"  # in blocks it reads its input twice and takes three launches
    after = worst.floor.time_us * (1.5 if scan else 1.0) * SLACK + worst.fault_us
    after = max(after, (3 if scan else 1) * call_us(seen.machine)) if seen.machine.device == "cuda" else after
    idle_us = seen.idle_us if seen.idle_us > LEAST_GAIN * seen.time_us else 0.0  # less is two clocks that differ
    others_us = sum(call.time_us for call in seen.calls if call is not worst) + idle_us + seen.unplaced_fault_us
    return [
        Move(
            kind="split",
            what=f"split the long dimension of {worst.operator.name} into blocks that run side by side",
            predicted_us=others_us + after,
            why=f"{worst.operator.name} {worst.operator.shapes} is at {percent_text(reach([worst]))} of its ceiling",
            operators=(worst.operator.index,),
        )
    ]


def _has_room(machine: Machine, call: Call) -> bool:
    """Whether there is something left to put to work: idle threads, or what nobody could look at."""
    if idle_threads(machine, call.threads):
        return True
    looked_at = call.threads is not None and call.operator.kind != "scan"  # threads can be busy walking in strides
    return reach([call]) < FARTHEST_REACH and not looked_at


def _is_skinny(call: Call) -> bool:
    """A product that would wait on memory if enough of it were in flight, such as one row times a matrix."""
    return call.operator.kind == "matrix" and call.floor.memory_us > call.floor.compute_us


def narrow(seen: Observation) -> list[Move]:
    """Products in float32 where bfloat16 is good enough: fewer bytes, and the faster unit where there is one."""
    wide = [c for c in seen.calls if c.operator.kind in ("matrix", "convolution", "attention") and _is_float32(c)]
    if not wide or sum(c.time_us for c in wide) < 0.3 * seen.time_us:
        return []
    gain = sum(c.time_us - _narrowed_us(c, seen.machine) for c in wide)
    return [
        Move(
            kind="dtype",
            what="do the products in bfloat16, if its accuracy is enough",
            predicted_us=seen.time_us - gain,
            why="half the bytes, and the rate of its unit: this changes the result",
            operators=tuple(c.operator.index for c in wide),
        )
    ]


def _is_float32(call: Call) -> bool:
    return "matrix/float32" in call.operator.work.flops


def _narrowed_us(call: Call, machine: Machine) -> float:
    work = call.operator.work
    flops = {unit.replace("float32", "bfloat16"): count for unit, count in work.flops.items()}
    halved = Work(flops=flops, bytes_read=work.bytes_read // 2, bytes_written=work.bytes_written // 2)
    if "bfloat16" not in machine.matrix_tflop_s:
        return call.time_us
    slack = max(call.net_us / max(call.floor.time_us, 1e-9), 1.0)
    return min(call.time_us, floor(halved, machine, cold_bytes=call.cold_bytes // 2).time_us * slack)


def batch(seen: Observation) -> list[Move]:
    """A product that waits on its weights serves more rows in the same time."""
    waiting = [c for c in seen.calls if c.operator.kind == "matrix" and c.regime == "memory-bound"]
    if sum(c.time_us for c in waiting) < 0.5 * seen.time_us:
        return []
    return [
        Move(
            kind="batch",
            what=f"batch {BATCH} inputs a call: about the same time for all of them (the figure is for one)",
            predicted_us=seen.time_us / BATCH,
            why="the weights are read once a call, however many rows use them",
        )
    ]


def layout(seen: Observation) -> list[Move]:
    """Copies that only bring values into another order: keep the order that their reader wants."""
    fused = {op.index for run in fusible_runs(seen.work) for op in run}
    copies = [c for c in seen.calls if c.operator.name in REORDERING and c.operator.index not in fused]
    if not copies:
        return []
    names = ", ".join(dict.fromkeys(call.operator.name for call in copies))
    return [
        Move(
            kind="layout",
            what=f"do without the copies ({names}): lay the values out as their reader wants them",
            predicted_us=seen.time_us - _time_us(copies, seen),
            why=f"{bytes_text(sum(c.operator.work.total_bytes for c in copies))} move only to change their order",
            operators=tuple(call.operator.index for call in copies),
        )
    ]


def reuse(seen: Observation) -> list[Move]:
    """Memory that is given back and fetched again on every call costs page faults; keep it."""
    if seen.fault_us < LEAST_GAIN * seen.time_us:
        return []
    return [
        Move(
            kind="reuse",
            what="keep freed memory in the process",
            predicted_us=seen.time_us - seen.fault_us,
            why=f"page faults take {percent_text(seen.fault_us / seen.time_us)} of the time",
            command="MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=2147483647 python ...",
        )
    ]


def _stop(seen: Observation) -> Move:
    times = seen.time_us / seen.fused.time_us if seen.fused.time_us else 1.0
    near = f"it runs at {times:.2f} times its floor" if times <= CLOSE else "no rule knows a move that gains 5 %"
    return Move(kind="stop", what=f"stop: {near}", predicted_us=seen.time_us)


RULES: tuple[Callable[[Observation], list[Move]], ...] = (fuse, graph, split, narrow, batch, layout, reuse)
