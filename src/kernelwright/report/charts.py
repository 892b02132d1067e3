"""Bars and intervals as SVG whose widths are percentages, under headings in HTML, which wrap on a narrow page."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from markupsafe import Markup

from kernelwright.core.optimization import RegionOutcome
from kernelwright.core.records import EQUIVALENCE_MARGIN, Accuracy, Bench, Diagnosis, VariantTiming
from kernelwright.core.units import number_text, percent_text, time_text
from kernelwright.report import format
from kernelwright.report.axes import MIN_PAGE_WIDTH, LinearScale, LogScale, Tick, padded_range, place_ticks
from kernelwright.report.drawing import render_template

MAX_NAME_LENGTH = 32
MAX_SAMPLES = 400
MAX_DEVIATION = 0.25
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

    position: float
    kind: str
    title: str


@dataclass(frozen=True)
class ChartRow:
    """One line of a chart: words above, a bar with marks and an interval below."""

    label: str
    value: str
    note: str
    segments: tuple[Segment, ...] = ()
    marks: tuple[Mark, ...] = ()
    interval: tuple[float, float] | None = None
    kind: str = ""
    dots: tuple[tuple[float, float, bool], ...] = ()


def render_time_bars(diagnosis: Diagnosis) -> Markup:
    """Now, as written, fused; the now bar shows what of it is no work, and how far it is from the fused floor."""
    found = format.time_bars(diagnosis)
    longest = max(bar.time_us for bar in found) or 1.0
    rows = []
    for bar in found:
        width = round(100 * bar.time_us / longest, 2)
        segments = [Segment(0, width, bar.kind, f"{bar.label}: {time_text(bar.time_us)}")]
        if bar.kind == "now":
            segments += _overhead_segments(diagnosis, width)
        rows.append(ChartRow(bar.label, time_text(bar.time_us), bar.caption, tuple(segments)))
    return render_template("bars.svg.j2", rows=rows, gap=_gap_text(diagnosis))


def _overhead_segments(diagnosis: Diagnosis, width: float) -> list[Segment]:
    """The ends of the now bar that are page faults and waiting."""
    found, end = [], width
    for lost_us, kind, what in (
        (diagnosis.overhead_us, "waiting", "waiting for the host"),
        (diagnosis.page_fault_us, "faults", "page faults"),
    ):
        if lost_us and diagnosis.time_us and lost_us <= diagnosis.time_us:
            part = min(round(width * lost_us / diagnosis.time_us, 2), end)
            end = round(end - part, 2)
            found.append(Segment(end, part, kind, f"{what}: {time_text(lost_us)}"))
    return found


def _gap_text(diagnosis: Diagnosis) -> str:
    """`64.4 ms above the fused floor, 2.75x`; empty for a prediction."""
    spent, floor = diagnosis.time_us, diagnosis.floors.fused_us
    if spent is None or not floor:
        return ""
    if spent <= floor:
        return "at the fused floor"
    return f"gap: {time_text(spent - floor)} above the fused floor, {format.factor_text(spent / floor)}"


def render_variants(bench: Bench) -> Markup:
    """Every arm as a bar with its interval, its floor and its hard bound."""
    longest = max((arm.high_us for arm in bench.variants), default=1.0) or 1.0
    scale = LinearScale(0, longest, 0, 100)
    rows = [_variant_row(i, arm, scale) for i, arm in enumerate(bench.variants)]
    return render_template("arms.svg.j2", rows=rows)


def _variant_row(i: int, arm: VariantTiming, scale: LinearScale) -> ChartRow:
    marks = []
    for at_us, kind, what in ((arm.floor_us, "floor", "floor"), (arm.datasheet_bound_us, "bound", "hard bound")):
        if at_us is not None and at_us <= scale.high:
            marks.append(Mark(scale.position(at_us), kind, f"{what}: {time_text(at_us)}"))
    ratio = format.ratio_text(arm.time_us, arm.floor_us)
    kind = "suspicious" if arm.suspicious else "first" if i == 0 else "other"
    return ChartRow(
        _label(arm.name),
        time_text(arm.time_us),
        "no floor" if ratio == "-" else f"{ratio} its floor",
        (Segment(0, scale.position(arm.time_us), kind, f"{format.sanitize_line(arm.name)}: {time_text(arm.time_us)}"),),
        tuple(marks),
        (scale.position(arm.low_us), scale.position(arm.high_us)),
        kind,
    )


def _label(name: str) -> str:
    """The end of a long name: a file says more than its folders."""
    name = format.sanitize_line(name)
    return name if len(name) <= MAX_NAME_LENGTH else "…" + name[1 - MAX_NAME_LENGTH :]


def render_region(found: RegionOutcome) -> Markup:
    """Before, predicted and after as three thin bars on the region's own scale, with its floor across them."""
    times = (
        ("before", found.before_us, "other"),
        ("predicted", found.predicted_us, "foreseen"),
        ("after", found.after_us, "first"),
    )
    scale = LinearScale(0, max(found.floor_us, *(time_us for _, time_us, _ in times)) or 1.0, 0, 100)
    bars = [Segment(0, scale.position(time_us), kind, f"{what}: {time_text(time_us)}") for what, time_us, kind in times]
    floor = (
        Mark(scale.position(found.floor_us), "floor", f"floor: {time_text(found.floor_us)}") if found.floor_us else None
    )
    return render_template("region.svg.j2", bars=bars, floor=floor)


def render_comparisons(bench: Bench) -> Markup:
    """Ratios with their 99 % intervals on a logarithmic axis, against the band in which two arms are the same."""
    ends = [end for found in bench.comparisons for end in (found.low, found.high, found.speedup)]
    low, high = padded_range([*ends, 1 / 1.05, 1.05], decades=0.03)
    scale = LogScale(low, high, 0, 100)
    rows = [
        ChartRow(
            format.comparison_text(bench, found),
            format.factor_text(found.speedup),
            format.interval_text(found),
            marks=(
                Mark(
                    scale.position(found.speedup),
                    found.verdict,
                    f"{format.factor_text(found.speedup)}, {found.pairs} pairs",
                ),
            ),
            interval=(scale.position(found.low), scale.position(found.high)),
            kind=found.verdict,
        )
        for found in bench.comparisons
    ]
    band = (scale.position(1 / (1 + EQUIVALENCE_MARGIN)), scale.position(1 + EQUIVALENCE_MARGIN))
    axis = _percent_ticks((scale.position(tick), format.factor_text(tick)) for tick in _ratio_ticks(low, high))
    return render_template("comparisons.svg.j2", rows=rows, band=band, one=scale.position(1), ticks=axis)


def _percent_ticks(places: Iterable[tuple[float, str]]) -> list[Tick]:
    return place_ticks(places, 0, 100, pixels=MIN_PAGE_WIDTH / 100)


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


def render_sample_strips(bench: Bench) -> Markup:
    """Every sample against the median of its arm, spread a little over the height so that none hides another."""
    timed = [(arm, arm.timing) for arm in bench.variants if arm.timing]
    spreads = [abs(s / arm.time_us - 1) for arm, timing in timed for s in timing.samples_us if arm.time_us > 0]
    limit = min(MAX_DEVIATION, max([0.02, *spreads]) * 1.05)
    scale = LinearScale(-limit, limit, 0, 100)
    rows = []
    for arm, timing in timed:
        dots = []
        for k, sample in enumerate(timing.samples_us[:MAX_SAMPLES]):
            off = sample / arm.time_us - 1 if arm.time_us > 0 else 0.0
            dots.append((scale.position(off), round((k * 0.618034 % 1 - 0.5) * 12, 2), abs(off) > limit))
        left = f", {timing.disturbed:,} disturbed" if timing.disturbed else ""
        samples, calls = number_text(len(timing.samples_us), "sample"), number_text(timing.repetitions, "call")
        note = f"{samples} of {calls}{left}"
        rows.append(ChartRow(_label(arm.name), time_text(arm.time_us), note, dots=tuple(dots)))
    edge = percent_text(limit)
    return render_template(
        "strips.svg.j2", rows=rows, ticks=_percent_ticks([(0, f"-{edge}"), (50, "median"), (100, f"+{edge}")])
    )


def render_error_line(accuracy: Accuracy) -> Markup:
    """The reference's own error, the limit and the candidate's error on one logarithmic line."""
    named = [
        (accuracy.reference_error, "reference", "reference's own"),
        (accuracy.limit, "limit", "limit"),
        (accuracy.error, "bad" if accuracy.error_over_limit > 1 else "good", "candidate"),
    ]
    known = [(value, kind, what) for value, kind, what in named if value > 0 and math.isfinite(value)]
    if not known:
        return Markup()
    scale = LogScale(*padded_range([value for value, _, _ in known], decades=0.5), 0, 100)
    marks = [Mark(scale.position(value), kind, f"{what}: {format.error_text(value)}") for value, kind, what in known]
    places = [(scale.position(tick), f"{tick:.0e}".replace("e-0", "e-")) for tick in scale.decades()]
    return render_template("errors.svg.j2", marks=marks, ticks=_percent_ticks(places))
