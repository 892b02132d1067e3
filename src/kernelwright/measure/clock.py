"""Host and device clocks; all timing in the package goes through this module.

The CPU uses the host's monotonic clock. CUDA uses two events around the calls, cross-checked against host time until
the device is idle: device time can never exceed it, so a larger event time is false. One untimed lead-in call keeps the
device busy while the host prepares the first timed one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

import torch

BenchFn = Callable[[], object]
CROSS_CHECK_SLACK_US = 20.0


class Clock(Protocol):
    """A clock that times calls."""

    name: str

    def time_us(self, call: BenchFn, repetitions: int = 1) -> float:
        """Time `repetitions` calls in a row; returns microseconds per call."""
        ...


class HostClock:
    """Elapsed host time on the monotonic clock."""

    name = "host"

    def time_us(self, call: BenchFn, repetitions: int = 1) -> float:
        """Time `repetitions` calls in a row; returns microseconds per call."""
        start = time.perf_counter_ns()
        for _ in range(repetitions):
            call()
        return (time.perf_counter_ns() - start) / 1e3 / repetitions


class EventClock:
    """Device time between two CUDA events, checked against the host clock."""

    name = "events"

    def time_us(self, call: BenchFn, repetitions: int = 1) -> float:
        """Time `repetitions` calls in a row; returns microseconds per call.

        Raises:
            RuntimeError: the events measure more time than the host clock: one of the clocks is manipulated or broken.
        """
        return _event_elapsed_us(call, repetitions, with_lead_call=True) / repetitions


class GraphClock:
    """Device time of a captured CUDA graph of the calls: excludes the launch overhead of small kernels."""

    name = "graph"

    def __init__(self) -> None:
        self._graphs: dict[tuple[int, int], tuple[BenchFn, torch.cuda.CUDAGraph]] = {}

    def time_us(self, call: BenchFn, repetitions: int = 1) -> float:
        """Time one replay of a graph of `repetitions` calls; returns microseconds per call."""
        key = (id(call), repetitions)
        if key not in self._graphs:
            self._graphs[key] = (call, capture_graph(call, repetitions))
        return _event_elapsed_us(self._graphs[key][1].replay, 1, with_lead_call=False) / repetitions


def _event_elapsed_us(call: BenchFn, repetitions: int, *, with_lead_call: bool) -> float:
    """Device time of all repetitions, in microseconds; `with_lead_call` runs one untimed call before them."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start = time.perf_counter_ns()
    if with_lead_call:
        call()
    begin.record()
    for _ in range(repetitions):
        call()
    end.record()
    torch.cuda.synchronize()
    wall_us = (time.perf_counter_ns() - start) / 1e3
    device_us = begin.elapsed_time(end) * 1e3
    if device_us > wall_us + CROSS_CHECK_SLACK_US:
        raise RuntimeError(f"CUDA events measured {device_us:.1f} us, the host clock only {wall_us:.1f} us")
    return device_us


def capture_graph(call: BenchFn, repetitions: int = 1) -> torch.cuda.CUDAGraph:
    """Capture `repetitions` calls in a CUDA graph, after the warm-up on a side stream that capture requires."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(repetitions):
            call()
    return graph


def clock_for(device: str) -> Clock:
    """The default clock of a device type: events for "cuda", else the host clock."""
    return EventClock() if device == "cuda" else HostClock()


def wall_s() -> float:
    """Seconds on the monotonic host clock, for budgets and time limits."""
    return time.perf_counter()


def synchronize(device: str) -> None:
    """Wait for all work on a CUDA device; does nothing on the CPU."""
    if device == "cuda":
        torch.cuda.synchronize()


def choose_repetitions(call: BenchFn, clock: Clock, min_sample_us: float) -> int:
    """Number of calls that makes one sample last at least `min_sample_us`."""
    call_us = max(clock.time_us(call), 1e-3)
    if call_us < min_sample_us:
        call_us = max(clock.time_us(call, max(2, int(min_sample_us / call_us / 4))), 1e-3)
    return max(1, min(100_000, int(-(-min_sample_us // call_us))))


def measure_steady_us(
    call: BenchFn, device: str, *, budget_s: float = 0.3, min_sample_us: float = 200.0, best: bool = False
) -> float:
    """Steady-state time of one call: the median (with `best` the minimum) of at least five samples after a warm-up."""
    clock = clock_for(device)
    call()
    repetitions = choose_repetitions(call, clock, min_sample_us)
    samples: list[float] = []
    deadline = wall_s() + budget_s
    while len(samples) < 5 or (wall_s() < deadline and len(samples) < 200):
        samples.append(clock.time_us(call, repetitions))
    samples.sort()
    return samples[0] if best else samples[len(samples) // 2]
