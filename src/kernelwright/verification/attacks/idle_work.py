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
MIN_CPU_US, MIN_CALL_SHARE, STATE_US, CERTAIN_SHARE = 1000.0, 1 / 4, 150.0, 3.0
"""Computing time before a call that is work: as much as this, and as this share of the call; the worker takes up to so
much for each parameter or buffer. From so many times as much on, it is certain without more calls."""


def find_touched_memory(
    calls: Sequence[TimedCall], null_calls: Sequence[TimedCall], output_bytes: int
) -> Reason | None:
    """The reason to reject a candidate that touches new memory between its calls, or None.

    Args:
        calls: consecutive ones, or series of calls.
        null_calls: the same before the candidate was loaded.
        output_bytes: of all outputs of one of them.
    """
    if len(calls) < 3 or len(null_calls) < 3:
        return None
    calls, null_calls = calls[1:], null_calls[1:]
    growth_bytes = median(one.idle_growth_bytes for one in calls) - median(one.idle_growth_bytes for one in null_calls)
    faults = mean(one.idle_faults for one in calls) - mean(one.idle_faults for one in null_calls)
    by_faults = faults >= max(MIN_FAULTS, MIN_OUTPUT_SHARE * output_bytes / mmap.PAGESIZE)
    if not by_faults and growth_bytes < max(MIN_GROWTH_BYTES, MIN_OUTPUT_SHARE * output_bytes):
        return None
    touched_bytes = max(faults * mmap.PAGESIZE, growth_bytes)
    detail = f"touches {touched_bytes / 1e6:.1f} MB of new memory between calls, outside the timed part"
    return Reason(code="false-time", detail=detail)


def find_computing(
    calls: Sequence[TimedCall], null_calls: Sequence[TimedCall], num_state: int, *, repeated: Sequence[TimedCall] = ()
) -> Reason | None:
    """The reason to reject a candidate that computes between its calls, or None. Arguments as before, and:

    Args:
        num_state: number of its parameters and buffers.
        repeated: more calls; with these, a reason needs both, or as much work in the first ones as is certain.
    """
    if len(calls) < 3 or len(null_calls) < 3:
        return None
    call_us = median(one.completed_us for one in calls[1:])
    limit_us = max(MIN_CPU_US, MIN_CALL_SHARE * call_us) + STATE_US * num_state
    computed_us = _computed_us(calls[1:], null_calls[1:])
    if computed_us < limit_us:
        return None
    if (
        len(repeated) >= 3
        and computed_us < CERTAIN_SHARE * limit_us
        and _computed_us(repeated, null_calls[1:]) < limit_us
    ):
        return None
    detail = f"computes for {computed_us:.0f} us between calls of {call_us:.0f} us, outside the timed part"
    return Reason(code="false-time", detail=detail)


def _computed_us(calls: Sequence[TimedCall], null_calls: Sequence[TimedCall]) -> float:
    """Computing time before a call: of most calls, since a busy machine lengthens some, and of all, since it is counted
    at ticks of the clock."""
    return min(
        summarize([one.idle_cpu_us for one in calls]) - summarize([one.idle_cpu_us for one in null_calls])
        for summarize in (_lower_quartile, mean)
    )


def _lower_quartile(times_us: Sequence[float]) -> float:
    return quantiles(times_us, n=4)[0]
