"""Observation of one program: each operator call with its time and floor, and the program as a whole."""

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
"""A call that reaches this share of a measured ceiling is bound by it; one that reaches SATURATED cannot improve."""
SATURATED = 0.8
OVERHEAD_DISPATCHES = 5
"""A call that takes at most this many bare dispatches is overhead-bound, regardless of its work."""
MIN_BUSY_SHARE = 0.75
"""A call that keeps a smaller share of the threads busy and is below its ceiling lacks parallelism."""
MIN_FAULTS_PER_CALL = 16
"""Fewer page faults per call are due to bookkeeping, not to a newly allocated output."""
ASSUMED_LAUNCH_US = 5.0
"""Assumed host time of one eager operator on an unavailable CUDA machine; measured on the host of an H200."""


@dataclass(frozen=True)
class TimedOperator:
    """One operator call.

    Attributes:
        fault_us: part of the time spent in page faults.
        cold_read_bytes: bytes of the program's arguments that this call is the first to read from DRAM.
        busy_threads: average number of busy CPU threads.
    """

    operator: Operator
    time_us: float
    fault_us: float
    floor: Floor
    regime: Regime
    cold_read_bytes: int = 0
    busy_threads: float | None = None

    @property
    def net_us(self) -> float:
        """Time without page faults."""
        return max(self.time_us - self.fault_us, 1e-3)


@dataclass(frozen=True)
class Observation:
    """One program on one machine.

    Attributes:
        time_us: time of the whole program, measured without timing its calls.
        idle_us: part of it in which the device waited for the host.
        unattributed_fault_us: part of it in page faults that occur only when calls are not timed, and so cannot be
            attributed to a call.
    """

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
        """Time of all page faults."""
        return self.unattributed_fault_us + sum(call.fault_us for call in self.operators)

    @property
    def as_written_floor_us(self) -> float:
        """Sum of the floors of all calls, without fusion."""
        return sum(call.floor.time_us for call in self.operators)


def observe(
    program: str,
    machine: Machine,
    work: ProgramWork,
    times: OperatorTimes,
    time_us: float,
    timing: Timing | None = None,
) -> Observation:
    """Combine counted work and measured times per call.

    Raises:
        ValueError: the counted run and the timed run differ in the number of calls.
    """
    if len(times.times_us) != len(work.operators):
        raise ValueError(f"{len(work.operators)} calls were counted and {len(times.times_us)} timed")
    cold = timing is not None and timing.conditions.cache == "cold"
    cold_bytes = first_read_bytes(work) if cold else {}
    calls = [
        _build_operator(machine, op, t, op.index in times.faulted_calls, cold_bytes.get(op.index, 0), threads)
        for op, t, threads in zip(work.operators, times.times_us, times.busy_threads, strict=False)
    ]
    total = sum(call.time_us for call in calls)
    if total > time_us:  # timing each call slows it down a little
        share = time_us / total
        calls = [
            _build_operator(machine, c.operator, c.time_us * share, c.fault_us > 0, c.cold_read_bytes, c.busy_threads)
            for c in calls
        ]
        total = time_us
    fused = floor(work.fused, machine, cold_bytes=sum(cold_bytes.values()))
    rest_us = max(time_us - total, 0.0)
    faulted = (
        machine.device == "cpu" and timing is not None and (timing.page_faults_per_call or 0.0) >= MIN_FAULTS_PER_CALL
    )
    idle_us, unattributed_us = (0.0, rest_us) if faulted else (rest_us, 0.0)
    return Observation(
        program, machine, work, tuple(calls), time_us, fused, idle_us, timing, unattributed_fault_us=unattributed_us
    )


def predict(program: str, machine: Machine, work: ProgramWork) -> Observation:
    """Predict the observation on an unavailable machine: each call takes the longer of its floor and one launch."""
    calls = []
    for operator in work.operators:
        call_floor = floor(operator.work, machine, cold_bytes=0)
        regime = _limiting_resource(call_floor) if call_floor.time_us > ASSUMED_LAUNCH_US else "overhead-bound"
        calls.append(
            TimedOperator(
                operator, call_floor.time_us, 0.0, call_floor, regime if operator.kind != "view" else "overhead-bound"
            )
        )
    launched = sum(operator.kind != "view" for operator in work.operators)
    total = sum(call.time_us for call in calls)
    time_us = max(total, launched * ASSUMED_LAUNCH_US)
    fused = floor(work.fused, machine)
    return Observation(program, machine, work, tuple(calls), time_us, fused, time_us - total, None, is_predicted=True)


def _build_operator(
    machine: Machine, operator: Operator, time_us: float, faulted: bool, cold_bytes: int, threads: float | None
) -> TimedOperator:
    call_floor = floor(operator.work, machine, cold_bytes=cold_bytes)
    fault_us = 0.0
    if faulted and machine.page_fault_us_per_mib:
        fault_us = min(machine.page_fault_us_per_mib * operator.allocated_bytes / 2**20, 0.9 * time_us)
    regime = _classify(machine, operator, time_us, time_us - fault_us, call_floor)
    if (
        regime in ("memory-bound", "compute-bound")
        and has_idle_threads(machine, threads)
        and call_floor.time_us < SATURATED * (time_us - fault_us)
    ):
        regime = "latency-bound"
    return TimedOperator(operator, time_us, fault_us, call_floor, regime, cold_bytes, threads)


def has_idle_threads(machine: Machine, threads: float | None) -> bool:
    """Whether a call left more than a quarter of the CPU threads idle."""
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
    """Time of torch's special functions for this work; 0 if the machine has no measured rate.

    A dtype without measurement counts as float32, to which torch upcasts it.
    """
    rates, default_rate = machine.special_tflop_s, machine.special_tflop_s.get("float32")
    units = {u.removeprefix("special/"): count for u, count in work.flops.items() if u.startswith("special/")}
    return sum(count / rate / 1e6 for dtype, count in units.items() if (rate := rates.get(dtype, default_rate)))


def _limiting_resource(floor: Floor) -> Regime:
    return "compute-bound" if floor.compute_us > floor.memory_us else "memory-bound"


def regime_shares(observation: Observation) -> dict[Regime, float]:
    """Share of the time, without page faults, in calls of each regime; idle time of the device counts as overhead."""
    spent: dict[Regime, float] = dict.fromkeys(
        ("compute-bound", "memory-bound", "overhead-bound", "latency-bound", "undetermined"), 0.0
    )
    for call in observation.operators:
        spent[call.regime] += call.net_us
    spent["overhead-bound"] += observation.idle_us
    total = sum(spent.values()) or 1.0
    return {regime: part / total for regime, part in spent.items()}


def roofline_efficiency(calls: Sequence[TimedOperator]) -> float:
    """Sum of the floors of calls over their time, without page faults; 1 is the machine's limit."""
    net = sum(call.net_us for call in calls)
    return sum(call.floor.time_us for call in calls) / net if net else 0.0
