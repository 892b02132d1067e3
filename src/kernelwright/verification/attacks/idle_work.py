"""Work between calls, which no clock sees: memory for outputs to come that is touched before a call begins."""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from statistics import mean, median

from kernelwright.core.verdict import Reason
from kernelwright.measure.clock_agreement import TimedCall

MIN_FAULTS, MIN_GROWTH_BYTES, MIN_OUTPUT_SHARE = 64, 1 << 20, 1 / 4
"""Page faults before a call that are work: as many as this, and as this share of the pages of its outputs. A huge page
is one fault: growth of the process before a call is work from so many bytes, and this share of its outputs."""


def find_idle_work(calls: Sequence[TimedCall], null_calls: Sequence[TimedCall], output_bytes: int) -> Reason | None:
    """The reason to reject a candidate that touches new memory between its calls, or None.

    Args:
        calls: consecutive ones, or series of calls.
        null_calls: the same before the candidate was loaded.
        output_bytes: of all outputs of one of them.
    """
    if len(calls) < 2 or len(null_calls) < 2:
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
