"""Timing of one variant, or of several interleaved in one process under the same conditions."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from kernelwright.core.bench import Comparison
from kernelwright.core.progress import report_stage
from kernelwright.core.timing import Conditions, Timing
from kernelwright.measure.buffers import CacheState, RotatingBuffers, parameter_bytes
from kernelwright.measure.clock import BenchFn, Clock, GraphClock, choose_repetitions, clock_for, synchronize, wall_s
from kernelwright.measure.conditions import SystemCounters, ThrottleMonitor, allocation_policy
from kernelwright.measure.statistics import compare_rounds, median_interval

MIN_SAMPLE_US = 200.0
MIN_DEVICE_SAMPLE_US = 2000.0
"""On CUDA the first launch of a sample hits an idle device and adds the host's 10 to 100 us; this hides that."""
MIN_ROUNDS, MAX_ROUNDS = 15, 101
INTERFERENCE_WINDOW_S = 1.0
"""CPU time of other processes is accurate to some hundredths of a second: shorter windows cannot be evaluated."""
GRAPH_BELOW_US = 50.0
"""Kernels this short are timed in a CUDA graph: the launch would dominate the time."""


@dataclass
class VariantSamples:
    """One variant: a name, a call without arguments, and its samples."""

    name: str
    call: BenchFn
    repetitions: int = 1
    samples_us: list[float] = field(default_factory=list)
    undisturbed: list[bool] = field(default_factory=list)
    page_faults: int = 0
    throttle_mask: int = 0


@dataclass(frozen=True)
class InterleavedTimings:
    """Timings of interleaved variants in one process: sample i of every variant belongs to round i."""

    timings: dict[str, Timing]
    undisturbed: tuple[bool, ...]

    def compare(self, a: str, b: str) -> Comparison:
        """Compare two variants by their undisturbed rounds; by all rounds if too few were undisturbed."""
        a_us, b_us = (select_undisturbed(self.timings[name].samples_us, self.undisturbed) for name in (a, b))
        return compare_rounds(a, a_us, b, b_us)


def select_undisturbed(samples: Sequence[float], undisturbed: Sequence[bool]) -> list[float]:
    """The samples without interference; all samples if fewer than `MIN_ROUNDS` are undisturbed."""
    kept = [sample for sample, is_clean in zip(samples, undisturbed, strict=True) if is_clean]
    return kept if len(kept) >= MIN_ROUNDS else list(samples)


def time_variants(
    variants: dict[str, Callable[..., Any]],
    inputs: tuple[Any, Any],
    *,
    device: str,
    last_cache_bytes: int,
    budget_s: float = 4.0,
    cache: CacheState = "cold",
    clock: Clock | None = None,
    warmup: int = 2,
) -> InterleavedTimings:
    """Time variants in one process in rounds: each round takes one sample of every variant, in random order.

    All variants read the same buffers, so that the placement of inputs in memory affects all alike.

    Args:
        variants: programs by name.
        inputs: (args, kwargs) on the device.
        device: "cpu" or "cuda".
        last_cache_bytes: capacity of the device's last-level cache, for `RotatingBuffers`.
        budget_s: time for all rounds.
        cache: requested cache state.
        clock: default: by device and duration.
        warmup: untimed calls per variant.
    """
    buffers = RotatingBuffers(inputs, last_cache_bytes, cache, max(map(parameter_bytes, variants.values())))
    for program in variants.values():
        buffers.save_if_mutated(program)
    samples = [VariantSamples(name, buffers.bind(program)) for name, program in variants.items()]
    clock = clock or _choose_clock(samples, device)
    _warm_up(samples, buffers, clock, warmup)
    _sample_rounds(samples, buffers, clock, budget_s, ThrottleMonitor(device))
    conditions = _build_conditions(device, clock, buffers)
    clean = tuple(map(all, zip(*(variant.undisturbed for variant in samples), strict=True)))
    return InterleavedTimings({variant.name: _build_timing(variant, conditions) for variant in samples}, clean)


def _choose_clock(variants: Sequence[VariantSamples], device: str) -> Clock:
    clock = clock_for(device)
    if device != "cuda":
        return clock
    try:
        short = all(_warm_time_us(variant.call, clock) < GRAPH_BELOW_US for variant in variants)
        return GraphClock() if short and not _has_many_launches(variants) else clock
    except RuntimeError:
        return clock


def _warm_time_us(call: BenchFn, clock: Clock) -> float:
    call()
    return min(clock.time_us(call, 10) for _ in range(3))


def _has_many_launches(variants: Sequence[VariantSamples]) -> bool:
    """Whether a variant launches more than two kernels: a graph would hide the launch overhead that is its cost."""
    import torch

    for variant in variants:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA], acc_events=True) as profile:
            variant.call()
            torch.cuda.synchronize()
        if sum(event.device_type == torch.autograd.DeviceType.CUDA for event in profile.events() or []) > 2:
            return True
    return False


def _warm_up(variants: Sequence[VariantSamples], buffers: RotatingBuffers, clock: Clock, warmup: int) -> None:
    for variant in variants:
        report_stage(f"warming up {variant.name}")
        for _ in range(warmup):
            variant.call()
        min_sample_us = MIN_SAMPLE_US if clock.name == "host" else MIN_DEVICE_SAMPLE_US
        variant.repetitions = choose_repetitions(variant.call, clock, min_sample_us)
        buffers.restore()


def _sample_rounds(
    variants: Sequence[VariantSamples],
    buffers: RotatingBuffers,
    clock: Clock,
    budget_s: float,
    throttle: ThrottleMonitor,
) -> None:
    order, start, rounds, rng = list(variants), wall_s(), 0, random.Random()
    report_stage(f"timing {', '.join(s.name for s in variants)}")
    monitor = InterferenceMonitor(clock)
    while rounds < MIN_ROUNDS or (rounds < MAX_ROUNDS and wall_s() - start < budget_s):
        rng.shuffle(order)
        for variant in order:
            buffers.restore()
            _take_sample(variant, clock, throttle)
        rounds += 1
        monitor.flag_interference(variants)
        if rounds >= 5 and wall_s() - start > 4 * budget_s:
            break
    monitor.flag_interference(variants, last=True)


class InterferenceMonitor:
    """Marks the rounds of a time window in which other processes competed for the CPUs that the samples used.

    CPU time is reported in hundredths of a second, so the window must be much longer. Device clocks are not affected.
    """

    def __init__(self, clock: Clock) -> None:
        self._enabled = clock.name == "host"
        self._start_window(0)

    def _start_window(self, rounds: int) -> None:
        self._first_round, self._start_s, self._counters = rounds, wall_s(), SystemCounters.now()

    def flag_interference(self, variants: Sequence[VariantSamples], *, last: bool = False) -> None:
        """End the window if it is long enough or `last`, and mark its rounds if there was interference."""
        window_s = wall_s() - self._start_s
        if not self._enabled or not (last or window_s >= INTERFERENCE_WINDOW_S):
            return
        import torch

        if window_s >= INTERFERENCE_WINDOW_S / 2 and SystemCounters.now().since(self._counters).shows_interference(
            window_s, torch.get_num_threads()
        ):
            for variant in variants:
                variant.undisturbed[self._first_round :] = [False] * (len(variant.undisturbed) - self._first_round)
        self._start_window(len(variants[0].undisturbed))


def _take_sample(variant: VariantSamples, clock: Clock, throttle: ThrottleMonitor) -> None:
    before = SystemCounters.now()
    variant.samples_us.append(clock.time_us(variant.call, variant.repetitions))
    change = SystemCounters.now().since(before)
    variant.page_faults += change.page_faults
    reasons = throttle.reasons()
    variant.throttle_mask |= reasons
    variant.undisturbed.append(change.steal_ticks == 0 and not reasons & ~0x4)


def _build_timing(variant: VariantSamples, conditions: Conditions) -> Timing:
    counted = select_undisturbed(variant.samples_us, variant.undisturbed)
    low, high = median_interval(counted)
    return Timing(
        name=variant.name,
        time_us=median(counted),
        low_us=low,
        high_us=high,
        samples_us=tuple(variant.samples_us),
        repetitions=variant.repetitions,
        conditions=conditions,
        disturbed=variant.undisturbed.count(False),
        page_faults_per_call=variant.page_faults / (len(variant.samples_us) * variant.repetitions),
        notes=(f"clock limited by {ThrottleMonitor('').describe(variant.throttle_mask)}",)
        if variant.throttle_mask
        else (),
    )


def _build_conditions(device: str, clock: Clock, buffers: RotatingBuffers) -> Conditions:
    import torch

    synchronize(device)
    return Conditions(
        device="cuda" if device == "cuda" else "cpu",
        clock=clock.name,  # type: ignore[arg-type]
        cache=buffers.cache,
        allocation="caching allocator" if device == "cuda" else allocation_policy(),
        threads=torch.get_num_threads() if device == "cpu" else None,
    )
