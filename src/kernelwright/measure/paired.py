"""Samples of one arm or of several that alternate in one process, under one set of conditions."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from kernelwright.core.progress import report_stage
from kernelwright.core.records import Comparison, Conditions, Timing
from kernelwright.measure.buffers import CacheState, RotatingBuffers, parameter_bytes
from kernelwright.measure.clock import BenchFn, Clock, GraphClock, choose_repetitions, clock_for, synchronize, wall_s
from kernelwright.measure.conditions import SystemCounters, ThrottleMonitor, allocation_policy
from kernelwright.measure.statistics import compare_rounds, median_interval

MIN_SAMPLE_US = 200.0
MIN_DEVICE_SAMPLE_US = 2000.0
"""On CUDA the first launch of a sample finds the device idle and shows the host's 10 to 100 us; this hides them."""
MIN_ROUNDS, MAX_ROUNDS = 15, 101
INTERFERENCE_WINDOW_S = 1.0
"""Others' processor time is good to some hundredths of a second: shorter stretches cannot be judged by it."""
GRAPH_BELOW_US = 50.0
"""Kernels this short are timed inside a CUDA graph: the launch would be most of what is measured."""


@dataclass
class VariantSamples:
    """One arm: a name and a call that takes no arguments."""

    name: str
    call: BenchFn
    repetitions: int = 1
    samples_us: list[float] = field(default_factory=list)
    undisturbed: list[bool] = field(default_factory=list)
    page_faults: int = 0
    throttle_mask: int = 0


@dataclass(frozen=True)
class InterleavedTimings:
    """Arms that alternated in one process: sample i of every arm belongs to round i."""

    timings: dict[str, Timing]
    undisturbed: tuple[bool, ...]

    def compare(self, a: str, b: str) -> Comparison:
        """Pairs the undisturbed rounds of two arms; all of them where too few were left undisturbed."""
        one, other = (select_undisturbed(self.timings[name].samples_us, self.undisturbed) for name in (a, b))
        return compare_rounds(a, one, b, other)


def select_undisturbed(samples: Sequence[float], undisturbed: Sequence[bool]) -> list[float]:
    """The samples that nobody disturbed; all of them where fewer than `MIN_ROUNDS` were left alone."""
    kept = [sample for sample, alone in zip(samples, undisturbed, strict=True) if alone]
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
    """Times arms of one process in rounds: each round takes one sample of every arm, in an order drawn anew.

    All arms read the same buffers, so that no arm owes its time to where its inputs lie.
    """
    rotation = RotatingBuffers(inputs, last_cache_bytes, cache, max(map(parameter_bytes, variants.values())))
    for program in variants.values():
        rotation.save_if_mutated(program)
    subjects = [VariantSamples(name, rotation.bind(program)) for name, program in variants.items()]
    clock = clock or _choose_clock(subjects, device)
    _warm_up(subjects, rotation, clock, warmup)
    _sample_rounds(subjects, rotation, clock, budget_s, ThrottleMonitor(device))
    conditions = _build_conditions(device, clock, rotation)
    clean = tuple(map(all, zip(*(subject.undisturbed for subject in subjects), strict=True)))
    return InterleavedTimings({subject.name: _build_timing(subject, conditions) for subject in subjects}, clean)


def _choose_clock(variants: Sequence[VariantSamples], device: str) -> Clock:
    clock = clock_for(device)
    if device != "cuda":
        return clock
    try:
        short = all(_warm_time_us(subject.call, clock) < GRAPH_BELOW_US for subject in variants)
        return GraphClock() if short and not _has_many_launches(variants) else clock
    except RuntimeError:
        return clock


def _warm_time_us(call: BenchFn, clock: Clock) -> float:
    call()
    return min(clock.time_us(call, 10) for _ in range(3))


def _has_many_launches(variants: Sequence[VariantSamples]) -> bool:
    """A chain of launches is timed as it runs: a graph would hide the overhead that is its very problem."""
    import torch

    for subject in variants:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA], acc_events=True) as profile:
            subject.call()
            torch.cuda.synchronize()
        if sum(event.device_type == torch.autograd.DeviceType.CUDA for event in profile.events() or []) > 2:
            return True
    return False


def _warm_up(variants: Sequence[VariantSamples], rotation: RotatingBuffers, clock: Clock, warmup: int) -> None:
    for subject in variants:
        report_stage(f"warming up {subject.name}")
        for _ in range(warmup):
            subject.call()
        least_us = MIN_SAMPLE_US if clock.name == "host" else MIN_DEVICE_SAMPLE_US
        subject.repetitions = choose_repetitions(subject.call, clock, least_us)
        rotation.restore()


def _sample_rounds(
    variants: Sequence[VariantSamples],
    rotation: RotatingBuffers,
    clock: Clock,
    budget_s: float,
    throttle: ThrottleMonitor,
) -> None:
    order, start, rounds, draw = list(variants), wall_s(), 0, random.Random()
    report_stage(f"timing {', '.join(s.name for s in variants)}")
    crowd = InterferenceMonitor(clock)
    while rounds < MIN_ROUNDS or (rounds < MAX_ROUNDS and wall_s() - start < budget_s):
        draw.shuffle(order)
        for subject in order:
            rotation.restore()
            _take_sample(subject, clock, throttle)
        rounds += 1
        crowd.flag_interference(variants)
        if rounds >= 5 and wall_s() - start > 4 * budget_s:
            break
    crowd.flag_interference(variants, last=True)


class InterferenceMonitor:
    """Marks the rounds of a stretch in which other programs wanted the processors that the samples used.

    Processor time is told in hundredths of a second, so only a stretch of many says anything. Device clocks do not
    care.
    """

    def __init__(self, clock: Clock) -> None:
        self._enabled = clock.name == "host"
        self._start_window(0)

    def _start_window(self, rounds: int) -> None:
        self._first_round, self._start_s, self._counters = rounds, wall_s(), SystemCounters.now()

    def flag_interference(self, variants: Sequence[VariantSamples], *, last: bool = False) -> None:
        """Ends the stretch when it is long enough, or `last`."""
        lasted_s = wall_s() - self._start_s
        if not self._enabled or not (last or lasted_s >= INTERFERENCE_WINDOW_S):
            return
        import torch

        if lasted_s >= INTERFERENCE_WINDOW_S / 2 and SystemCounters.now().since(self._counters).shows_interference(
            lasted_s, torch.get_num_threads()
        ):
            for subject in variants:
                subject.undisturbed[self._first_round :] = [False] * (len(subject.undisturbed) - self._first_round)
        self._start_window(len(variants[0].undisturbed))


def _take_sample(variant: VariantSamples, clock: Clock, throttle: ThrottleMonitor) -> None:
    before = SystemCounters.now()
    variant.samples_us.append(clock.time_us(variant.call, variant.repetitions))
    seen = SystemCounters.now().since(before)
    variant.page_faults += seen.page_faults
    reasons = throttle.reasons()
    variant.throttle_mask |= reasons
    variant.undisturbed.append(seen.steal_ticks == 0 and not reasons & ~0x4)


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


def _build_conditions(device: str, clock: Clock, rotation: RotatingBuffers) -> Conditions:
    import torch

    synchronize(device)
    return Conditions(
        device="cuda" if device == "cuda" else "cpu",
        clock=clock.name,  # type: ignore[arg-type]
        cache=rotation.cache,
        allocation="caching allocator" if device == "cuda" else allocation_policy(),
        threads=torch.get_num_threads() if device == "cpu" else None,
    )
