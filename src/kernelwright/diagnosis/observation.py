"""What was seen of one program: each call with its time beside its floor, and the whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kernelwright.core.diagnosis import Floor, Regime
from kernelwright.core.machine import Machine
from kernelwright.core.timing import Timing
from kernelwright.core.work import Operator, ProgramWork, Work
from kernelwright.machines.floor import floor
from kernelwright.measure.operators import OperatorTimes
from kernelwright.work import first_read_bytes

NEAR_ROOFLINE = 0.6
"""From this share of a measured ceiling on, that ceiling is what a call waits on; from SATURATED on nothing is left."""
SATURATED = 0.8
OVERHEAD_DISPATCHES = 5
"""A call that takes no more than this many bare dispatches is overhead, whatever it computes."""
MIN_BUSY_SHARE = 0.75
"""A call that keeps fewer of the threads busy, and is not at its ceiling, has too little in flight."""
MIN_FAULTS_PER_CALL = 16
"""Fewer page faults a call than this belong to bookkeeping, not to an output that is allocated anew."""
ASSUMED_LAUNCH_US = 5.0
"""Host time of one eager operator on a CUDA machine that is not there; 5.0 us was measured on an H200's host."""


@dataclass(frozen=True)
class TimedOperator:
    """One operator call: its time, the part of it that went to page faults, its floor, how many bytes of the
    program's arguments it is the first to fetch from main memory, and how many threads of a CPU were busy in it."""

    operator: Operator
    time_us: float
    fault_us: float
    floor: Floor
    regime: Regime
    cold_read_bytes: int = 0
    busy_threads: float | None = None

    @property
    def net_us(self) -> float:
        return max(self.time_us - self.fault_us, 1e-3)


@dataclass(frozen=True)
class Observation:
    """One program on one machine. `outputs_read_us` is the clean time of the whole, taken without looking at the parts;
    `idle_us` the part of it in which the device waited for the host, `unattributed_fault_us` the part that went to page
    faults which only the clean runs met, so that no call can be charged with them."""

    program: str
    machine: Machine
    work: ProgramWork
    operators: tuple[TimedOperator, ...]
    time_us: float
    fused_floor: Floor
    idle_us: float
    timing: Timing | None
    is_predicted: bool = False
    unattributed_fault_us: float = 0.0

    @property
    def fault_us(self) -> float:
        return self.unattributed_fault_us + sum(call.fault_us for call in self.operators)

    @property
    def as_written_floor_us(self) -> float:
        return sum(call.floor.time_us for call in self.operators)


def observe(
    program: str,
    machine: Machine,
    work: ProgramWork,
    times: OperatorTimes,
    time_us: float,
    timing: Timing | None = None,
) -> Observation:
    """Joins counted work with measured times, call by call.

    Raises:
        ValueError: the counted run and the timed one made another number of calls.
    """
    if len(times.times_us) != len(work.operators):
        raise ValueError(f"{len(work.operators)} calls were counted and {len(times.times_us)} timed")
    cold = timing is not None and timing.conditions.cache == "cold"
    fetched = first_read_bytes(work) if cold else {}
    calls = [
        _build_operator(machine, op, t, op.index in times.faulted_calls, fetched.get(op.index, 0), threads)
        for op, t, threads in zip(work.operators, times.times_us, times.busy_threads, strict=False)
    ]
    total = sum(call.time_us for call in calls)
    if total > time_us:  # the clock around each call disturbs it a little
        share = time_us / total
        calls = [
            _build_operator(machine, c.operator, c.time_us * share, c.fault_us > 0, c.cold_read_bytes, c.busy_threads)
            for c in calls
        ]
        total = time_us
    fused = floor(work.fused, machine, cold_bytes=sum(fetched.values()))
    rest_us = max(time_us - total, 0.0)
    faulted = (
        machine.device == "cpu" and timing is not None and (timing.page_faults_per_call or 0.0) >= MIN_FAULTS_PER_CALL
    )
    idle_us, unplaced_us = (0.0, rest_us) if faulted else (rest_us, 0.0)
    return Observation(
        program, machine, work, tuple(calls), time_us, fused, idle_us, timing, unattributed_fault_us=unplaced_us
    )


def predict(program: str, machine: Machine, work: ProgramWork) -> Observation:
    """An observation of a machine that is not there: each call takes its floor or one launch, whichever is more."""
    calls = []
    for operator in work.operators:
        least = floor(operator.work, machine, cold_bytes=0)
        regime = _limiting_resource(least) if least.time_us > ASSUMED_LAUNCH_US else "overhead-bound"
        calls.append(
            TimedOperator(operator, least.time_us, 0.0, least, regime if operator.kind != "view" else "overhead-bound")
        )
    launched = sum(operator.kind != "view" for operator in work.operators)
    total = sum(call.time_us for call in calls)
    time_us = max(total, launched * ASSUMED_LAUNCH_US)
    fused = floor(work.fused, machine)
    return Observation(program, machine, work, tuple(calls), time_us, fused, time_us - total, None, is_predicted=True)


def _build_operator(
    machine: Machine, operator: Operator, time_us: float, faulted: bool, cold_bytes: int, threads: float | None
) -> TimedOperator:
    least = floor(operator.work, machine, cold_bytes=cold_bytes)
    fault_us = 0.0
    if faulted and machine.page_fault_us_per_mib:
        fault_us = min(machine.page_fault_us_per_mib * operator.allocated_bytes / 2**20, 0.9 * time_us)
    regime = _classify(machine, operator, time_us, time_us - fault_us, least)
    if (
        regime in ("memory-bound", "compute-bound")
        and has_idle_threads(machine, threads)
        and least.time_us < SATURATED * (time_us - fault_us)
    ):
        regime = "latency-bound"
    return TimedOperator(operator, time_us, fault_us, least, regime, cold_bytes, threads)


def has_idle_threads(machine: Machine, threads: float | None) -> bool:
    """Whether a call left a good part of the processor's threads without work."""
    return threads is not None and machine.threads is not None and threads < MIN_BUSY_SHARE * machine.threads


def _classify(machine: Machine, operator: Operator, time_us: float, net_us: float, floor: Floor) -> Regime:
    if not operator.flops_known:
        return "undetermined"
    if special_function_us(machine, operator.work) >= max(floor.time_us, NEAR_ROOFLINE * net_us):
        return "compute-bound"
    if floor.time_us >= NEAR_ROOFLINE * net_us:
        return _limiting_resource(floor)
    if operator.kind == "view" or (
        machine.device == "cpu" and time_us <= OVERHEAD_DISPATCHES * (machine.dispatch_us or 1.0)
    ):
        return "overhead-bound"
    return "latency-bound"


def special_function_us(machine: Machine, work: Work) -> float:
    """How long torch's own special functions take for this work; 0 where the machine does not say. A dtype that was
    not measured counts as float32, into which torch widens it."""
    rates, usual = machine.special_tflop_s, machine.special_tflop_s.get("float32")
    units = {u.removeprefix("special/"): count for u, count in work.flops.items() if u.startswith("special/")}
    return sum(count / rate / 1e6 for dtype, count in units.items() if (rate := rates.get(dtype, usual)))


def _limiting_resource(floor: Floor) -> Regime:
    return "compute-bound" if floor.compute_us > floor.memory_us else "memory-bound"


def regime_shares(observation: Observation) -> dict[Regime, float]:
    """How much of the time, page faults aside, goes to calls of each regime; idle time of the device is overhead."""
    spent: dict[Regime, float] = dict.fromkeys(
        ("compute-bound", "memory-bound", "overhead-bound", "latency-bound", "undetermined"), 0.0
    )
    for call in observation.operators:
        spent[call.regime] += call.net_us
    spent["overhead-bound"] += observation.idle_us
    total = sum(spent.values()) or 1.0
    return {regime: part / total for regime, part in spent.items()}


def roofline_efficiency(calls: Sequence[TimedOperator]) -> float:
    """Floor over time of some calls together, page faults aside: 1 is at the machine's speed."""
    net = sum(call.net_us for call in calls)
    return sum(call.floor.time_us for call in calls) / net if net else 0.0
