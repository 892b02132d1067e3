"""Bars and intervals as SVG whose widths are percentages, under headings in HTML, which wrap on a narrow page."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from markupsafe import Markup

from kernelwright.core.optimization import RegionOutcome
from kernelwright.core.records import MARGIN, Accuracy, Arm, Bench, Diagnosis
from kernelwright.core.units import number_text, percent_text, time_text
from kernelwright.report import format
from kernelwright.report.axes import NARROWEST, LinearScale, LogScale, Tick, around, ticks
from kernelwright.report.drawing import render

MOST_NAME = 32
MOST_SAMPLES = 400
STRIP_LIMIT = 0.25
"""Samples further than this share from their arm's median are drawn at the edge."""


@dataclass(frozen=True)
class Segment:
    """One part of a bar, in percent of the chart's width."""

    start: float
    width: float
    kind: str
    title: str


@dataclass(frozen=True)
class Mark:
    """A thin line across a bar."""

    at: float
    kind: str
    title: str


@dataclass(frozen=True)
class Row:
    """One line of a chart: words above, a bar with marks and an interval below."""

    label: str
    value: str
    note: str
    segments: tuple[Segment, ...] = ()
    marks: tuple[Mark, ...] = ()
    interval: tuple[float, float] | None = None
    kind: str = ""
    dots: tuple[tuple[float, float, bool], ...] = ()


def bars(diagnosis: Diagnosis) -> Markup:
    """Now, as written, fused; the now bar shows what of it is no work, and how far it is from the fused floor."""
    found = format.bars(diagnosis)
    longest = max(bar.time_us for bar in found) or 1.0
    rows = []
    for bar in found:
        width = round(100 * bar.time_us / longest, 2)
        segments = [Segment(0, width, bar.kind, f"{bar.label}: {time_text(bar.time_us)}")]
        if bar.kind == "now":
            segments += _lost(diagnosis, width)
        rows.append(Row(bar.label, time_text(bar.time_us), bar.caption, tuple(segments)))
    return render("bars.svg.j2", rows=rows, gap=_gap(diagnosis))


def _lost(diagnosis: Diagnosis, width: float) -> list[Segment]:
    """The ends of the now bar that are page faults and waiting."""
    found, end = [], width
    for lost_us, kind, what in (
        (diagnosis.overhead_us, "waiting", "waiting for the host"),
        (diagnosis.fault_us, "faults", "page faults"),
    ):
        if lost_us and diagnosis.time_us and lost_us <= diagnosis.time_us:
            part = min(round(width * lost_us / diagnosis.time_us, 2), end)
            end = round(end - part, 2)
            found.append(Segment(end, part, kind, f"{what}: {time_text(lost_us)}"))
    return found


def _gap(diagnosis: Diagnosis) -> str:
    """`64.4 ms above the fused floor, 2.75x`; empty for a prediction."""
    spent, floor = diagnosis.time_us, diagnosis.floors.fused_us
    if spent is None or not floor:
        return ""
    if spent <= floor:
        return "at the fused floor"
    return f"gap: {time_text(spent - floor)} above the fused floor, {format.times_text(spent / floor)}"


def arms(bench: Bench) -> Markup:
    """Every arm as a bar with its interval, its floor and its hard bound."""
    longest = max((arm.high_us for arm in bench.arms), default=1.0) or 1.0
    scale = LinearScale(0, longest, 0, 100)
    rows = [_arm_row(i, arm, scale) for i, arm in enumerate(bench.arms)]
    return render("arms.svg.j2", rows=rows)


def _arm_row(i: int, arm: Arm, scale: LinearScale) -> Row:
    marks = []
    for at_us, kind, what in ((arm.floor_us, "floor", "floor"), (arm.hard_bound_us, "bound", "hard bound")):
        if at_us is not None and at_us <= scale.high:
            marks.append(Mark(scale.at(at_us), kind, f"{what}: {time_text(at_us)}"))
    ratio = format.ratio_text(arm.time_us, arm.floor_us)
    kind = "suspicious" if arm.suspicious else "first" if i == 0 else "other"
    return Row(
        _label(arm.name),
        time_text(arm.time_us),
        "no floor" if ratio == "-" else f"{ratio} its floor",
        (Segment(0, scale.at(arm.time_us), kind, f"{format.plain(arm.name)}: {time_text(arm.time_us)}"),),
        tuple(marks),
        (scale.at(arm.low_us), scale.at(arm.high_us)),
        kind,
    )


def _label(name: str) -> str:
    """The end of a long name: a file says more than its folders."""
    name = format.plain(name)
    return name if len(name) <= MOST_NAME else "…" + name[1 - MOST_NAME :]


def region(found: RegionOutcome) -> Markup:
    """Before, predicted and after as three thin bars on the region's own scale, with its floor across them."""
    times = (
        ("before", found.before_us, "other"),
        ("predicted", found.predicted_us, "foreseen"),
        ("after", found.after_us, "first"),
    )
    scale = LinearScale(0, max(found.floor_us, *(time_us for _, time_us, _ in times)) or 1.0, 0, 100)
    bars = [Segment(0, scale.at(time_us), kind, f"{what}: {time_text(time_us)}") for what, time_us, kind in times]
    floor = Mark(scale.at(found.floor_us), "floor", f"floor: {time_text(found.floor_us)}") if found.floor_us else None
    return render("region.svg.j2", bars=bars, floor=floor)


def comparisons(bench: Bench) -> Markup:
    """Ratios with their 99 % intervals on a logarithmic axis, against the band in which two arms are the same."""
    ends = [end for found in bench.comparisons for end in (found.low, found.high, found.ratio)]
    low, high = around([*ends, 1 / 1.05, 1.05], decades=0.03)
    scale = LogScale(low, high, 0, 100)
    rows = [
        Row(
            format.comparison_text(bench, found),
            format.times_text(found.ratio),
            format.interval_text(found),
            marks=(
                Mark(scale.at(found.ratio), found.verdict, f"{format.times_text(found.ratio)}, {found.pairs} pairs"),
            ),
            interval=(scale.at(found.low), scale.at(found.high)),
            kind=found.verdict,
        )
        for found in bench.comparisons
    ]
    band = (scale.at(1 / (1 + MARGIN)), scale.at(1 + MARGIN))
    axis = _percent_ticks((scale.at(tick), format.times_text(tick)) for tick in _ratio_ticks(low, high))
    return render("comparisons.svg.j2", rows=rows, band=band, one=scale.at(1), ticks=axis)


def _percent_ticks(places: Iterable[tuple[float, str]]) -> list[Tick]:
    return ticks(places, 0, 100, pixels=NARROWEST / 100)


def _ratio_ticks(low: float, high: float) -> list[float]:
    """Round ratios inside the axis, far enough apart for their labels; 1 is always there."""
    wanted = [m * 10.0**p for p in range(-4, 5) for m in ((1,) if high / low > 100 else (1, 2, 5))]
    if high / low < 1.6:
        wanted = [round(0.5 + i * 0.05, 2) for i in range(40)]
    kept = [1.0]
    for tick in wanted:
        apart = all(abs(math.log(tick / other)) > math.log(high / low) / 4.5 for other in kept)
        if low <= tick <= high and apart:
            kept.append(tick)
    return sorted(kept)


def strips(bench: Bench) -> Markup:
    """Every sample against the median of its arm, spread a little over the height so that none hides another."""
    timed = [(arm, arm.timing) for arm in bench.arms if arm.timing]
    spreads = [abs(s / arm.time_us - 1) for arm, timing in timed for s in timing.samples_us if arm.time_us > 0]
    limit = min(STRIP_LIMIT, max([0.02, *spreads]) * 1.05)
    scale = LinearScale(-limit, limit, 0, 100)
    rows = []
    for arm, timing in timed:
        dots = []
        for k, sample in enumerate(timing.samples_us[:MOST_SAMPLES]):
            off = sample / arm.time_us - 1 if arm.time_us > 0 else 0.0
            dots.append((scale.at(off), round((k * 0.618034 % 1 - 0.5) * 12, 2), abs(off) > limit))
        left = f", {timing.disturbed:,} disturbed" if timing.disturbed else ""
        samples, calls = number_text(len(timing.samples_us), "sample"), number_text(timing.repetitions, "call")
        note = f"{samples} of {calls}{left}"
        rows.append(Row(_label(arm.name), time_text(arm.time_us), note, dots=tuple(dots)))
    edge = percent_text(limit)
    return render(
        "strips.svg.j2", rows=rows, ticks=_percent_ticks([(0, f"-{edge}"), (50, "median"), (100, f"+{edge}")])
    )


def error_line(accuracy: Accuracy) -> Markup:
    """The reference's own error, the limit and the candidate's error on one logarithmic line."""
    named = [
        (accuracy.reference_error, "reference", "reference's own"),
        (accuracy.limit, "limit", "limit"),
        (accuracy.error, "bad" if accuracy.times_limit > 1 else "good", "candidate"),
    ]
    known = [(value, kind, what) for value, kind, what in named if value > 0 and math.isfinite(value)]
    if not known:
        return Markup()
    scale = LogScale(*around([value for value, _, _ in known], decades=0.5), 0, 100)
    marks = [Mark(scale.at(value), kind, f"{what}: {format.error_text(value)}") for value, kind, what in known]
    places = [(scale.at(tick), f"{tick:.0e}".replace("e-0", "e-")) for tick in scale.decades()]
    return render("errors.svg.j2", marks=marks, ticks=_percent_ticks(places))
