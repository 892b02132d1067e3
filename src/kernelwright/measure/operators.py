"""Time per operator of a running program.

The innermost dispatch mode times the call alone, without what other modes (such as counting) do around it. On CUDA the
profiler measures the device time of the kernels that the call launched.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from statistics import median
from time import perf_counter_ns, process_time_ns
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from kernelwright.measure.clock import HostClock, measure_steady_us
from kernelwright.measure.conditions import count_page_faults

PROFILER_LABEL = "kw:"
MIN_THREADS_SPAN_NS = 100_000
MIN_FAULTS_SPAN_NS = 100_000
"""Only calls at least this long can spend noticeable time on page faults; reading the counter costs a microsecond."""


class ClockMode(TorchDispatchMode):
    """Host time and page faults of each operator, in call order.

    Attributes:
        spans_ns: host time of each call, also on CUDA; `_device_times_us` has the device time.
        cpu_time_ns: CPU time of all threads together, of each call.
        faulted_calls: indices of the calls with page faults.
    """

    def __init__(self, device: str = "cpu") -> None:
        super().__init__()
        self.spans_ns: list[int] = []
        self.cpu_time_ns: list[int] = []
        self.faulted_calls: set[int] = set()
        self._use_profiler = device == "cuda"

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self._use_profiler:
            with torch.profiler.record_function(f"{PROFILER_LABEL}{len(self.spans_ns)}"):
                return self._time_call(func, args, kwargs)
        faults = count_page_faults()
        result = self._time_call(func, args, kwargs)
        if self.spans_ns[-1] > MIN_FAULTS_SPAN_NS and count_page_faults() > faults:
            self.faulted_calls.add(len(self.spans_ns) - 1)
        return result

    def _time_call(self, func: Any, args: Any, kwargs: Any) -> Any:
        index = len(self.spans_ns)
        self.spans_ns.append(0)
        self.cpu_time_ns.append(0)
        busy, start = process_time_ns(), perf_counter_ns()
        try:
            result = func(*args, **kwargs)
        except BaseException:
            del self.spans_ns[index:], self.cpu_time_ns[index:]  # a call that raised is not counted
            raise
        self.spans_ns[index] = perf_counter_ns() - start
        self.cpu_time_ns[index] = process_time_ns() - busy
        return result


class OperatorTimes:
    """Microseconds of each call in order, the indices of calls with page faults, and the busy threads of each call."""

    def __init__(self, times_us: list[float], faulted: set[int], threads: Sequence[float | None] = ()) -> None:
        self.times_us, self.faulted_calls = times_us, faulted
        self.busy_threads = list(threads) or [None] * len(times_us)


@contextlib.contextmanager
def record_operator_times(device: str) -> Iterator[Callable[[], OperatorTimes]]:
    """Time every operator inside the block; call the yielded function after the block has ended.

    The time of other modes that are entered inside the block is not included.
    """
    mode = ClockMode(device)
    if device != "cuda":
        with mode:
            yield lambda: OperatorTimes(_subtract_redispatch(mode.spans_ns), mode.faulted_calls, _busy_threads(mode))
        return
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities, acc_events=True) as profile:
        # torch 2.11 reports the first labelled call of a profile with twice its device time: use a dummy call.
        with torch.profiler.record_function("first"):
            torch.zeros(1, device="cuda")
            torch.cuda.synchronize()
        with mode:
            yield lambda: OperatorTimes(_device_times_us(profile, len(mode.spans_ns)), mode.faulted_calls)
            torch.cuda.synchronize()


def time_operators(
    call: Callable[[], Any],
    device: str,
    passes: int = 5,
    outer_mode: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext,
) -> OperatorTimes:
    """Median time of each operator over several runs of `call`; runs with a different number of calls are ignored.

    Args:
        outer_mode: a mode whose time is not included, such as one that decomposes composite operators.
    """
    runs: list[OperatorTimes] = []
    for _ in range(passes):
        with record_operator_times(device) as get_times, outer_mode():
            call()
        runs.append(get_times())
    counts = [len(run.times_us) for run in runs]
    most_common = max(counts, key=counts.count)
    matching = [run for run in runs if len(run.times_us) == most_common]
    times = [median(column) for column in zip(*(s.times_us for s in matching), strict=True)]
    threads = [
        median(b for b in column if b is not None) if None not in column else None
        for column in zip(*(s.busy_threads for s in matching), strict=True)
    ]
    return OperatorTimes(times, set.intersection(*(s.faulted_calls for s in matching)), threads)


def _busy_threads(mode: ClockMode) -> list[float | None]:
    """CPU time over elapsed time; None for calls so short that waking the threads dominates."""
    pairs = zip(mode.cpu_time_ns, mode.spans_ns, strict=True)
    return [busy / span if span > MIN_THREADS_SPAN_NS else None for busy, span in pairs]


def _subtract_redispatch(spans_ns: list[int]) -> list[float]:
    """Host time of each call less the overhead of the mode itself, measured now on the smallest operator."""
    extra_us = measure_redispatch_us() if spans_ns else 0.0
    return [max(span / 1e3 - extra_us, 0.05) for span in spans_ns]


def measure_redispatch_us() -> float:
    """How much longer a tiny operator takes under the timing mode than without it."""
    tiny = torch.ones(1)
    plain = measure_steady_us(lambda: tiny.add(tiny), "cpu", budget_s=0.01)
    mode = ClockMode()
    with mode:
        HostClock().time_us(lambda: tiny.add(tiny), 300)
    return max(median(mode.spans_ns) / 1e3 - plain, 0.0)


def _device_times_us(profile: Any, calls: int) -> list[float]:
    times = [0.0] * calls
    for event in profile.events():
        if event.name.startswith(PROFILER_LABEL) and event.device_type == torch.autograd.DeviceType.CPU:
            times[int(event.name.removeprefix(PROFILER_LABEL))] = sum_device_us(event)
    return times


def sum_device_us(event: Any) -> float:
    """Device time of the kernels under a profiler event. The event's own sum includes our label's span."""
    own = sum(kernel.duration for kernel in event.kernels if not kernel.name.startswith(PROFILER_LABEL))
    return float(own + sum(sum_device_us(child) for child in event.cpu_children))
