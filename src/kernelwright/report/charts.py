"""Bar and interval charts as SVG with widths in percent, below HTML headings that wrap on a narrow page."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from markupsafe import Markup

from kernelwright.core.bench import EQUIVALENCE_MARGIN, Bench, VariantTiming
from kernelwright.core.diagnosis import Diagnosis
from kernelwright.core.optimization import RegionOutcome
from kernelwright.core.units import number_text, percent_text, time_text
from kernelwright.core.verdict import Accuracy
from kernelwright.report import format
from kernelwright.report.axes import MIN_PAGE_WIDTH, LinearScale, LogScale, Tick, padded_range, place_ticks
from kernelwright.report.drawing import render_template

MAX_NAME_LENGTH = 32
MAX_SAMPLES = 400
MAX_DEVIATION = 0.25
"""Samples that deviate from their variant's median by more than this fraction are drawn at the edge."""


@dataclass(frozen=True)
class Segment:
    """A segment of a bar, in percent of the chart's width."""

    start: float
    width: float
    kind: str
    title: str


@dataclass(frozen=True)
class Mark:
    """A marker line across a bar."""

    position: float
    kind: str
    title: str


@dataclass(frozen=True)
class ChartRow:
    """A row of a chart: heading, and below it a bar with markers and an interval."""

    label: str
    value: str
    note: str
    segments: tuple[Segment, ...] = ()
    marks: tuple[Mark, ...] = ()
    interval: tuple[float, float] | None = None
    kind: str = ""
    dots: tuple[tuple[float, float, bool], ...] = ()


def render_time_bars(diagnosis: Diagnosis) -> Markup:
    """Draw the measured time, with its overhead marked, and the floors as written and fused."""
    bars = format.time_bars(diagnosis)
    longest = max(bar.time_us for bar in bars) or 1.0
    rows = []
    for bar in bars:
        width = round(100 * bar.time_us / longest, 2)
        segments = [Segment(0, width, bar.kind, f"{bar.label}: {time_text(bar.time_us)}")]
        if bar.kind == "now":
            segments += _overhead_segments(diagnosis, width)
        rows.append(ChartRow(bar.label, time_text(bar.time_us), bar.caption, tuple(segments)))
    return render_template("bars.svg.j2", rows=rows, gap=_gap_text(diagnosis))


def _overhead_segments(diagnosis: Diagnosis, width: float) -> list[Segment]:
    """Segments at the end of the measured time: waiting for the host, and page faults."""
    segments, end = [], width
    for lost_us, kind, label in (
        (diagnosis.overhead_us, "waiting", "waiting for the host"),
        (diagnosis.page_fault_us, "faults", "page faults"),
    ):
        if lost_us and diagnosis.time_us and lost_us <= diagnosis.time_us:
            part = min(round(width * lost_us / diagnosis.time_us, 2), end)
            end = round(end - part, 2)
            segments.append(Segment(end, part, kind, f"{label}: {time_text(lost_us)}"))
    return segments


def _gap_text(diagnosis: Diagnosis) -> str:
    """`gap: 64.4 ms above the fused floor, 2.75x`; empty for a prediction."""
    spent, floor = diagnosis.time_us, diagnosis.floors.fused_us
    if spent is None or not floor:
        return ""
    if spent <= floor:
        return "at the fused floor"
    return f"gap: {time_text(spent - floor)} above the fused floor, {format.factor_text(spent / floor)}"


def render_variants(bench: Bench) -> Markup:
    """Draw every variant as a bar with its interval, floor and datasheet bound."""
    longest = max((variant.high_us for variant in bench.variants), default=1.0) or 1.0
    scale = LinearScale(0, longest, 0, 100)
    rows = [_variant_row(i, variant, scale) for i, variant in enumerate(bench.variants)]
    return render_template("variants.svg.j2", rows=rows)


def _variant_row(i: int, variant: VariantTiming, scale: LinearScale) -> ChartRow:
    marks = []
    bounds = ((variant.floor_us, "floor", "floor"), (variant.datasheet_bound_us, "bound", "datasheet bound"))
    for bound_us, kind, label in bounds:
        if bound_us is not None and bound_us <= scale.high:
            marks.append(Mark(scale.position(bound_us), kind, f"{label}: {time_text(bound_us)}"))
    ratio = format.ratio_text(variant.time_us, variant.floor_us)
    kind = "suspicious" if variant.suspicious else "first" if i == 0 else "other"
    time = time_text(variant.time_us)
    return ChartRow(
        _label(variant.name),
        time,
        "no floor" if ratio == "-" else f"{ratio} floor",
        (Segment(0, scale.position(variant.time_us), kind, f"{format.sanitize_line(variant.name)}: {time}"),),
        tuple(marks),
        (scale.position(variant.low_us), scale.position(variant.high_us)),
        kind,
    )


def _label(name: str) -> str:
    """Shorten a long name to its end, as the file name matters more than its folders."""
    name = format.sanitize_line(name)
    return name if len(name) <= MAX_NAME_LENGTH else "…" + name[1 - MAX_NAME_LENGTH :]


def render_region(region: RegionOutcome) -> Markup:
    """Draw the times before, predicted and after as bars on the region's own scale, with its floor across them."""
    times = (
        ("before", region.before_us, "other"),
        ("predicted", region.predicted_us, "predicted"),
        ("after", region.after_us, "first"),
    )
    scale = LinearScale(0, max(region.floor_us, *(time_us for _, time_us, _ in times)) or 1.0, 0, 100)
    bars = [
        Segment(0, scale.position(time_us), kind, f"{label}: {time_text(time_us)}") for label, time_us, kind in times
    ]
    floor_us = region.floor_us
    floor = Mark(scale.position(floor_us), "floor", f"floor: {time_text(floor_us)}") if floor_us else None
    return render_template("region.svg.j2", bars=bars, floor=floor)


def render_comparisons(bench: Bench) -> Markup:
    """Draw speedups with their 99 % intervals on a logarithmic axis, with the equivalence margin as a band."""
    ends = [end for comparison in bench.comparisons for end in (comparison.low, comparison.high, comparison.speedup)]
    low, high = padded_range([*ends, 1 / 1.05, 1.05], decades=0.03)
    scale = LogScale(low, high, 0, 100)
    rows = [
        ChartRow(
            format.comparison_text(bench, comparison),
            format.factor_text(comparison.speedup),
            format.interval_text(comparison),
            marks=(
                Mark(
                    scale.position(comparison.speedup),
                    comparison.verdict,
                    f"{format.factor_text(comparison.speedup)}, {comparison.pairs} pairs",
                ),
            ),
            interval=(scale.position(comparison.low), scale.position(comparison.high)),
            kind=comparison.verdict,
        )
        for comparison in bench.comparisons
    ]
    band = (scale.position(1 / (1 + EQUIVALENCE_MARGIN)), scale.position(1 + EQUIVALENCE_MARGIN))
    axis = _percent_ticks((scale.position(tick), format.factor_text(tick)) for tick in _ratio_ticks(low, high))
    return render_template("comparisons.svg.j2", rows=rows, band=band, one=scale.position(1), ticks=axis)


def _percent_ticks(labels: Iterable[tuple[float, str]]) -> list[Tick]:
    return place_ticks(labels, 0, 100, pixels=MIN_PAGE_WIDTH / 100)


def _ratio_ticks(low: float, high: float) -> list[float]:
    """Return round ratios inside the axis with space for their labels, always including 1."""
    round_ratios = [m * 10.0**p for p in range(-4, 5) for m in ((1,) if high / low > 100 else (1, 2, 5))]
    if high / low < 1.6:
        round_ratios = [round(0.5 + i * 0.05, 2) for i in range(40)]
    ticks = [1.0]
    for ratio in round_ratios:
        fits = all(abs(math.log(ratio / tick)) > math.log(high / low) / 4.5 for tick in ticks)
        if low <= ratio <= high and fits:
            ticks.append(ratio)
    return sorted(ticks)


def render_sample_strips(bench: Bench) -> Markup:
    """Draw every sample relative to the median of its variant, with vertical jitter against overlap."""
    timed = [(variant, variant.timing) for variant in bench.variants if variant.timing]
    spreads = [abs(s / one.time_us - 1) for one, timing in timed for s in timing.samples_us if one.time_us > 0]
    limit = min(MAX_DEVIATION, max([0.02, *spreads]) * 1.05)
    scale = LinearScale(-limit, limit, 0, 100)
    rows = []
    for variant, timing in timed:
        dots = []
        for k, sample in enumerate(timing.samples_us[:MAX_SAMPLES]):
            deviation = sample / variant.time_us - 1 if variant.time_us > 0 else 0.0
            jitter = round((k * 0.618034 % 1 - 0.5) * 12, 2)
            dots.append((scale.position(deviation), jitter, abs(deviation) > limit))
        disturbed = f", {timing.disturbed:,} disturbed" if timing.disturbed else ""
        samples, calls = number_text(len(timing.samples_us), "sample"), number_text(timing.repetitions, "call")
        note = f"{samples} of {calls}{disturbed}"
        rows.append(ChartRow(_label(variant.name), time_text(variant.time_us), note, dots=tuple(dots)))
    edge = percent_text(limit)
    return render_template(
        "strips.svg.j2", rows=rows, ticks=_percent_ticks([(0, f"-{edge}"), (50, "median"), (100, f"+{edge}")])
    )


def render_error_line(accuracy: Accuracy) -> Markup:
    """Draw the errors of reference and candidate and the limit on a logarithmic axis."""
    named = [
        (accuracy.reference_error, "reference", "reference"),
        (accuracy.limit, "limit", "limit"),
        (accuracy.error, "bad" if accuracy.error_over_limit > 1 else "good", "candidate"),
    ]
    finite = [(value, kind, label) for value, kind, label in named if value > 0 and math.isfinite(value)]
    if not finite:
        return Markup()
    scale = LogScale(*padded_range([value for value, _, _ in finite], decades=0.5), 0, 100)
    marks = [Mark(scale.position(value), kind, f"{label}: {format.error_text(value)}") for value, kind, label in finite]
    labels = [(scale.position(tick), f"{tick:.0e}".replace("e-0", "e-")) for tick in scale.decades()]
    return render_template("errors.svg.j2", marks=marks, ticks=_percent_ticks(labels))
