"""Times pairs of new processes, one per variant, and combines the pairs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from statistics import median

import msgspec

from kernelwright.benchmark.variants import BASELINE_NAMES
from kernelwright.core.bench import Comparison
from kernelwright.core.timing import Timing
from kernelwright.core.verdict import Reason
from kernelwright.measure.statistics import compare_processes, median_interval

NARROW_CLAIM_RATIO = 1.10
"""A result whose interval ends below this ratio is measured with twice the pairs; chance rarely exceeds it."""


@dataclass(frozen=True)
class PairedTimings:
    """Timings of all variants and their comparisons.

    Attributes:
        recheck_notes: by variant name, the result of rechecking variants with implausible times.
        rejections: by candidate name, why it was rejected during timing; it has no timing.
    """

    timings: list[Timing]
    comparisons: list[Comparison]
    recheck_notes: dict[str, str] = field(default_factory=dict)
    rejections: dict[str, Reason] = field(default_factory=dict)


def time_pairs(
    time_pair: Callable[[str], dict[str, Timing]], candidates: Collection[str], baselines: Sequence[str], pairs: int
) -> PairedTimings:
    """Time `pairs` pairs, and as many again if a result is close.

    Args:
        time_pair: returns a timing by variant name. A candidate missing from the result is dropped with its earlier
            timings; those of the other variants are kept.
    """
    timings_by_name: dict[str, list[Timing]] = {}
    names = list(candidates)

    def run_pairs() -> list[Comparison]:
        """Time `pairs` more pairs and compare over all pairs so far."""
        for number in range(pairs):
            timings = time_pair(f"pair {number + 1} of {pairs}")
            for dropped in [name for name in names if name not in timings]:
                names.remove(dropped)
                timings_by_name.pop(dropped, None)
            if candidates and not names:
                timings_by_name.clear()
                break
            for name, timing in timings.items():
                timings_by_name.setdefault(name, []).append(timing)
        return [_compare(timings_by_name, a, BASELINE_NAMES[b]) for a, b in product(names, baselines)]

    comparisons = run_pairs()
    if any(map(_is_narrow, comparisons)):
        comparisons = run_pairs()
    return PairedTimings([_merge_timings(timings) for timings in timings_by_name.values()], comparisons)


def _is_narrow(comparison: Comparison) -> bool:
    """Whether a result is so close to SAME that it needs more pairs: a 99 % interval over few pairs is wrong once in a
    hundred, and a program compared with itself must not win."""
    nearest = {"FASTER": comparison.low, "SLOWER": 1 / comparison.high}.get(comparison.verdict)
    return nearest is not None and nearest < NARROW_CLAIM_RATIO


def exclude_rejected(
    measured: PairedTimings,
    rejections: Mapping[str, Reason],
    candidates: Collection[str],
    recheck_notes: dict[str, str],
) -> PairedTimings:
    """Remove the rejected candidates; all timings if every candidate is rejected.

    Args:
        recheck_notes: as in `PairedTimings`.
    """
    timings = [one for one in measured.timings if one.name not in rejections]
    comparisons = [one for one in measured.comparisons if one.variant not in rejections]
    if candidates and rejections.keys() >= set(candidates):
        timings = comparisons = []
    return PairedTimings(timings, comparisons, recheck_notes, dict(rejections))


def _compare(timings: dict[str, list[Timing]], a: str, b: str) -> Comparison:
    return compare_processes(a, [t.time_us for t in timings[a]], b, [t.time_us for t in timings[b]])


def _merge_timings(timings: list[Timing]) -> Timing:
    """Merge the timings of several processes; each process counts once, by its median."""
    medians = [t.time_us for t in timings]
    low, high = median_interval(medians)
    return msgspec.structs.replace(
        timings[0],
        time_us=median(medians),
        low_us=low,
        high_us=high,
        samples_us=tuple(medians),
        conditions=msgspec.structs.replace(timings[0].conditions, processes=len(timings)),
        disturbed=sum(t.disturbed for t in timings),
        page_faults_per_call=median(t.page_faults_per_call or 0.0 for t in timings),
        notes=tuple(dict.fromkeys(note for t in timings for note in t.notes)),
    )
