"""Pairs of fresh processes, one for each arm, and what all pairs together say."""

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
"""A claim whose interval ends below is made over twice the pairs; luck alone hardly reaches further."""


@dataclass(frozen=True)
class PairedTimings:
    """Arms and what is claimed of them.

    Attributes:
        recheck_notes: by their names, what came of asking those again whose time is less than can be.
        rejections: by their names, why candidates were rejected while they were timed: they have no arm.
    """

    timings: list[Timing]
    comparisons: list[Comparison]
    recheck_notes: dict[str, str] = field(default_factory=dict)
    rejections: dict[str, Reason] = field(default_factory=dict)


def time_pairs(
    time_pair: Callable[[str], dict[str, Timing]], candidates: Collection[str], baselines: Sequence[str], pairs: int
) -> PairedTimings:
    """So many pairs, and as many more where a claim is narrow.

    Args:
        time_pair: a time of each arm; a candidate that is not among them has no arm any more. What was taken of the
            others stays.
    """
    taken: dict[str, list[Timing]] = {}
    names = list(candidates)

    def take() -> list[Comparison]:
        """So many pairs more, and what all pairs say by now."""
        for number in range(pairs):
            found = time_pair(f"pair {number + 1} of {pairs}")
            for lost in [name for name in names if name not in found]:
                names.remove(lost)
                taken.pop(lost, None)
            if candidates and not names:
                taken.clear()
                break
            for name, timing in found.items():
                taken.setdefault(name, []).append(timing)
        return [_compare(taken, a, BASELINE_NAMES[b]) for a, b in product(names, baselines)]

    comparisons = take()
    if any(map(_is_narrow, comparisons)):
        comparisons = take()
    return PairedTimings([_merge_timings(timings) for timings in taken.values()], comparisons)


def _is_narrow(comparison: Comparison) -> bool:
    """Whether a claim is so near to SAME that it is asked again: an interval of 99 % over few pairs errs once in a
    hundred, and a program compared with itself must not win."""
    nearest = {"FASTER": comparison.low, "SLOWER": 1 / comparison.high}.get(comparison.verdict)
    return nearest is not None and nearest < NARROW_CLAIM_RATIO


def exclude_rejected(
    measured: PairedTimings,
    rejections: Mapping[str, Reason],
    candidates: Collection[str],
    recheck_notes: dict[str, str],
) -> PairedTimings:
    """The same without the candidates that were caught; nothing where all are.

    Args:
        recheck_notes: as `PairedTimings` has it.
    """
    left = [one for one in measured.timings if one.name not in rejections]
    compared = [one for one in measured.comparisons if one.variant not in rejections]
    if candidates and rejections.keys() >= set(candidates):
        left = compared = []
    return PairedTimings(left, compared, recheck_notes, dict(rejections))


def _compare(timings: dict[str, list[Timing]], a: str, b: str) -> Comparison:
    return compare_processes(a, [t.time_us for t in timings[a]], b, [t.time_us for t in timings[b]])


def _merge_timings(timings: list[Timing]) -> Timing:
    """One timing over processes: each process counts once, by its median."""
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
