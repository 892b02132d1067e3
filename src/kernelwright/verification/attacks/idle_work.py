"""Work between calls, which no clock sees: memory for outputs to come that is touched before a call begins, or
computations that need no input of it."""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from statistics import mean, median, quantiles

from kernelwright.core.verdict import Reason
from kernelwright.measure.clock_agreement import TimedCall

MIN_FAULTS, MIN_GROWTH_BYTES, MIN_OUTPUT_SHARE = 64, 1 << 20, 1 / 4
"""Page faults before a call that are work: as many as this, and as this share of the pages of its outputs. A huge page
is one fault: growth of the process before a call is work from so many bytes, and this share of its outputs."""
MIN_CPU_US, MIN_CALL_SHARE, STATE_US = 1000.0, 1 / 4, 150.0
"""Computing time before a call that is work: as much as this, and as this share of the call; the worker takes up to so
much for each parameter or buffer."""


def find_idle_work(
    calls: Sequence[TimedCall], null_calls: Sequence[TimedCall], output_bytes: int, num_state: int
) -> Reason | None:
    """The reason to reject a candidate that touches new memory or computes between its calls, or None.

    Args:
        calls: consecutive ones, or series of calls.
        null_calls: the same before the candidate was loaded.
        output_bytes: of all outputs of one of them.
        num_state: number of its parameters and buffers.
    """
    if len(calls) < 3 or len(null_calls) < 3:
        return None
    calls, null_calls = calls[1:], null_calls[1:]
    growth_bytes = median(one.idle_growth_bytes for one in calls) - median(one.idle_growth_bytes for one in null_calls)
    faults = mean(one.idle_faults for one in calls) - mean(one.idle_faults for one in null_calls)
    by_faults = faults >= max(MIN_FAULTS, MIN_OUTPUT_SHARE * output_bytes / mmap.PAGESIZE)
    if by_faults or growth_bytes >= max(MIN_GROWTH_BYTES, MIN_OUTPUT_SHARE * output_bytes):
        touched_bytes = max(faults * mmap.PAGESIZE, growth_bytes)
        detail = f"touches {touched_bytes / 1e6:.1f} MB of new memory between calls, outside the timed part"
        return Reason(code="false-time", detail=detail)
    computed_us = min(
        summarize([one.idle_cpu_us for one in calls]) - summarize([one.idle_cpu_us for one in null_calls])
        for summarize in (_lower_quartile, mean)
    )
    call_us = median(one.completed_us for one in calls)
    if computed_us >= max(MIN_CPU_US, MIN_CALL_SHARE * call_us) + STATE_US * num_state:
        detail = f"computes for {computed_us:.0f} us between calls of {call_us:.0f} us, outside the timed part"
        return Reason(code="false-time", detail=detail)
    return None


def _lower_quartile(times_us: Sequence[float]) -> float:
    """Of the computing times before calls, some of which a busy machine lengthens."""
    return quantiles(times_us, n=4)[0]
