"""Work between calls, which no clock sees: memory for outputs to come that is touched before a call begins."""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from statistics import mean

from kernelwright.core.verdict import Reason
from kernelwright.measure.clock_agreement import TimedCall

MIN_FAULTS, MIN_OUTPUT_SHARE = 64, 1 / 4
"""Page faults before a call that are work: as many as this, and as this share of the pages of its outputs."""


def find_idle_work(calls: Sequence[TimedCall], null_calls: Sequence[TimedCall], output_bytes: int) -> Reason | None:
    """The reason to reject a candidate that touches new memory between its calls, or None.

    Args:
        calls: consecutive ones, or series of calls.
        null_calls: the same before the candidate was loaded.
        output_bytes: of all outputs of one of them.
    """
    if len(calls) < 2 or len(null_calls) < 2:
        return None
    faults = mean(one.idle_faults for one in calls[1:]) - mean(one.idle_faults for one in null_calls[1:])
    if faults < max(MIN_FAULTS, MIN_OUTPUT_SHARE * output_bytes / mmap.PAGESIZE):
        return None
    detail = f"touches {faults * mmap.PAGESIZE / 1e6:.1f} MB of new memory between calls, outside the timed part"
    return Reason(code="false-time", detail=detail)
