"""Samples of one arm or of several that alternate in one process, under one set of conditions."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from kernelwright.core.progress import stage
from kernelwright.core.records import Comparison, Conditions, Timing
from kernelwright.measure.buffers import Cache, Rotation, held_bytes
from kernelwright.measure.clock import Call, Clock, GraphClock, clock_for, repetitions_for, synchronize, wall_s
from kernelwright.measure.conditions import Disturbance, Throttle, allocation_policy
from kernelwright.measure.statistics import compare_rounds, median_interval

LEAST_SAMPLE_US = 200.0
LEAST_DEVICE_SAMPLE_US = 2000.0
"""On CUDA the first launch of a sample finds the device idle and shows the host's 10 to 100 us; this hides them."""
LEAST_ROUNDS, MOST_ROUNDS = 15, 101
STRETCH_S = 1.0
"""Others' processor time is good to some hundredths of a second: shorter stretches cannot be judged by it."""
GRAPH_BELOW_US = 50.0
"""Kernels this short are timed inside a CUDA graph: the launch would be most of what is measured."""


@dataclass
class Subject:
    """One arm: a name and a call that takes no arguments."""

    name: str
    call: Call
    repetitions: int = 1
    samples: list[float] = field(default_factory=list)
    clean: list[bool] = field(default_factory=list)
    faults: int = 0
    throttle: int = 0


@dataclass(frozen=True)
class Rounds:
    """Arms that alternated in one process: sample i of every arm belongs to round i."""

    timings: dict[str, Timing]
    clean: tuple[bool, ...]

    def compare(self, a: str, b: str) -> Comparison:
        """Pairs the undisturbed rounds of two arms; all of them where too few were left undisturbed."""
        one, other = (undisturbed(self.timings[name].samples_us, self.clean) for name in (a, b))
        return compare_rounds(a, one, b, other)


def undisturbed(samples: Sequence[float], clean: Sequence[bool]) -> list[float]:
    """The samples that nobody disturbed; all of them where fewer than `LEAST_ROUNDS` were left alone."""
    kept = [sample for sample, alone in zip(samples, clean, strict=True) if alone]
    return kept if len(kept) >= LEAST_ROUNDS else list(samples)


def time_arms(
    arms: dict[str, Callable[..., Any]],
    inputs: tuple[Any, Any],
    *,
    device: str,
    last_cache_bytes: int,
    budget_s: float = 4.0,
    cache: Cache = "cold",
    clock: Clock | None = None,
    warmup: int = 2,
) -> Rounds:
    """Times arms of one process in rounds: each round takes one sample of every arm, in an order drawn anew.

    All arms read the same buffers, so that no arm owes its time to where its inputs lie.
    """
    rotation = Rotation(inputs, last_cache_bytes, cache, max(map(held_bytes, arms.values())))
    for program in arms.values():
        rotation.protect(program)
    subjects = [Subject(name, rotation.bind(program)) for name, program in arms.items()]
    clock = clock or _clock_for(subjects, device)
    _prepare(subjects, rotation, clock, warmup)
    _sample_rounds(subjects, rotation, clock, budget_s, Throttle(device))
    conditions = _conditions(device, clock, rotation)
    clean = tuple(map(all, zip(*(subject.clean for subject in subjects), strict=True)))
    return Rounds({subject.name: _timing(subject, conditions) for subject in subjects}, clean)


def _clock_for(subjects: Sequence[Subject], device: str) -> Clock:
    clock = clock_for(device)
    if device != "cuda":
        return clock
    try:
        short = all(_warm_time_us(subject.call, clock) < GRAPH_BELOW_US for subject in subjects)
        return GraphClock() if short and not _launches_many(subjects) else clock
    except RuntimeError:
        return clock


def _warm_time_us(call: Call, clock: Clock) -> float:
    call()
    return min(clock.time_us(call, 10) for _ in range(3))


def _launches_many(subjects: Sequence[Subject]) -> bool:
    """A chain of launches is timed as it runs: a graph would hide the overhead that is its very problem."""
    import torch

    for subject in subjects:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA], acc_events=True) as profile:
            subject.call()
            torch.cuda.synchronize()
        if sum(event.device_type == torch.autograd.DeviceType.CUDA for event in profile.events() or []) > 2:
            return True
    return False


def _prepare(subjects: Sequence[Subject], rotation: Rotation, clock: Clock, warmup: int) -> None:
    for subject in subjects:
        stage(f"warming up {subject.name}")
        for _ in range(warmup):
            subject.call()
        least_us = LEAST_SAMPLE_US if clock.name == "host" else LEAST_DEVICE_SAMPLE_US
        subject.repetitions = repetitions_for(subject.call, clock, least_us)
        rotation.restore()


def _sample_rounds(
    subjects: Sequence[Subject], rotation: Rotation, clock: Clock, budget_s: float, throttle: Throttle
) -> None:
    order, start, rounds, draw = list(subjects), wall_s(), 0, random.Random()
    stage(f"timing {', '.join(s.name for s in subjects)}")
    crowd = Crowd(clock)
    while rounds < LEAST_ROUNDS or (rounds < MOST_ROUNDS and wall_s() - start < budget_s):
        draw.shuffle(order)
        for subject in order:
            rotation.restore()
            _sample(subject, clock, throttle)
        rounds += 1
        crowd.judge(subjects)
        if rounds >= 5 and wall_s() - start > 4 * budget_s:
            break
    crowd.judge(subjects, last=True)


class Crowd:
    """Marks the rounds of a stretch in which other programs wanted the processors that the samples used.

    Processor time is told in hundredths of a second, so only a stretch of many says anything. Device clocks do not
    care.
    """

    def __init__(self, clock: Clock) -> None:
        self._matters = clock.name == "host"
        self._begin(0)

    def _begin(self, rounds: int) -> None:
        self._rounds, self._start_s, self._seen = rounds, wall_s(), Disturbance.now()

    def judge(self, subjects: Sequence[Subject], *, last: bool = False) -> None:
        """Ends the stretch when it is long enough, or `last`."""
        lasted_s = wall_s() - self._start_s
        if not self._matters or not (last or lasted_s >= STRETCH_S):
            return
        import torch

        if lasted_s >= STRETCH_S / 2 and Disturbance.now().since(self._seen).crowds(lasted_s, torch.get_num_threads()):
            for subject in subjects:
                subject.clean[self._rounds :] = [False] * (len(subject.clean) - self._rounds)
        self._begin(len(subjects[0].clean))


def _sample(subject: Subject, clock: Clock, throttle: Throttle) -> None:
    before = Disturbance.now()
    subject.samples.append(clock.time_us(subject.call, subject.repetitions))
    seen = Disturbance.now().since(before)
    subject.faults += seen.faults
    reasons = throttle.reasons()
    subject.throttle |= reasons
    subject.clean.append(seen.stolen_ticks == 0 and not reasons & ~0x4)


def _timing(subject: Subject, conditions: Conditions) -> Timing:
    counted = undisturbed(subject.samples, subject.clean)
    low, high = median_interval(counted)
    return Timing(
        name=subject.name,
        time_us=median(counted),
        low_us=low,
        high_us=high,
        samples_us=tuple(subject.samples),
        repetitions=subject.repetitions,
        conditions=conditions,
        disturbed=subject.clean.count(False),
        faults_per_call=subject.faults / (len(subject.samples) * subject.repetitions),
        notes=(f"clock limited by {Throttle('').text(subject.throttle)}",) if subject.throttle else (),
    )


def _conditions(device: str, clock: Clock, rotation: Rotation) -> Conditions:
    import torch

    synchronize(device)
    return Conditions(
        device="cuda" if device == "cuda" else "cpu",
        clock=clock.name,  # type: ignore[arg-type]
        cache=rotation.cache,
        allocation="caching allocator" if device == "cuda" else allocation_policy(),
        threads=torch.get_num_threads() if device == "cpu" else None,
    )
