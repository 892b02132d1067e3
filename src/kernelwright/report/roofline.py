"""Roofline charts: attainable FLOP/s over arithmetic intensity, with operators and programs as dots.

Slopes are the bandwidths of the memory levels, each with its fastest mix of reads and writes; flat roofs are the
arithmetic rates per dtype. The area of an operator's dot is its time. Both axes are logarithmic.
Source: Williams, Waterman, Patterson 2009, doi:10.1145/1498765.1498785.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
from markupsafe import Markup

from kernelwright.core.diagnosis import Diagnosis, OperatorSummary
from kernelwright.core.ladder import LadderRun
from kernelwright.core.machine import Machine
from kernelwright.core.units import percent_text, rate_text, time_text
from kernelwright.report import format, ladders
from kernelwright.report.axes import LogScale, padded_range, place_ticks
from kernelwright.report.ceilings import arithmetic_roofs, bandwidth_slopes
from kernelwright.report.drawing import render_template

LARGEST_DOT, SMALLEST_DOT = 22.0, 3.0
LINE_HEIGHT = 14.0
MAX_DOTS = 200


@dataclass(frozen=True)
class RooflineFrame:
    """Size and margins of a drawing; if `narrow`, lines have short labels and the numbers are in a key below."""

    width: int
    height: int
    left: int = 50
    top: int = 26
    right: int = 14
    bottom: int = 46
    narrow: bool = False


@dataclass(frozen=True)
class Point:
    """A point to draw, in FLOP per byte and TFLOP/s, with the radius of its dot.

    `short_label` is the label in the narrow layout.
    """

    intensity: float
    tflop_s: float
    radius: float
    kind: str
    title: str
    label: str = ""
    short_label: str = ""


@dataclass(frozen=True)
class Dot:
    """A point in drawing units, with a label to its right at `label_y`."""

    x: float
    y: float
    radius: float
    kind: str
    title: str
    label: str
    label_y: float


WIDE, NARROW = RooflineFrame(760, 430), RooflineFrame(340, 370, left=46, narrow=True)


def render_roofline(machine: Machine, diagnosis: Diagnosis | None = None, points: Sequence[Point] = ()) -> Markup:
    """Render the chart as inline SVG in a wide and a narrow layout; the style sheet shows one of them.

    Empty if the machine has no known bandwidth or no known arithmetic rate.
    """
    placed = [*(_points(diagnosis) if diagnosis else ()), *points]
    return _render_roofline(machine, placed, WIDE, "wide") + _render_roofline(machine, placed, NARROW, "narrow")


def render_ladder_roofline(run: LadderRun) -> Markup:
    """Render every timed rung below the roofs of the ladder's dtype; empty without times."""
    points = _rung_points(run)
    machine = run.machine
    matrix, vector = (
        {dtype: rate for dtype, rate in rates.items() if dtype == run.dtype}
        for rates in (machine.matrix_tflop_s, machine.vector_tflop_s)
    )
    if matrix or vector:
        machine = msgspec.structs.replace(machine, matrix_tflop_s=matrix, vector_tflop_s=vector)
    return render_roofline(machine, points=points) if points else Markup()


def _rung_points(run: LadderRun) -> list[Point]:
    """Points of each rung and of the baseline on the representative size."""
    size = ladders.representative_size(run)
    timed = [(rung, time) for rung in run.rungs for time in rung.times if time.size == size]
    points = [
        Point(
            time.flops / time.bytes,
            rate := time.flops / time.time_us / 1e6,
            7.0,
            "operator",
            f"{rung.number} {rung.name}: {rate_text(rate)}",
            f"{rung.number} {rung.name}",
            str(rung.number),
        )
        for rung, time in timed
    ]
    if timed:
        last = timed[-1][1]
        rate = last.flops / last.baseline_us / 1e6
        title = f"{run.baseline}: {rate_text(rate)}"
        points.append(Point(last.flops / last.bytes, rate, 6.0, "goal", title, run.baseline, run.baseline))
    return points


def count_unplaced_operators(diagnosis: Diagnosis) -> int:
    """Count operators without FLOPs, bytes or time, which have no position on logarithmic axes."""
    return sum(not _is_placeable(row) for row in diagnosis.operators)


def _render_roofline(machine: Machine, points: list[Point], frame: RooflineFrame, name: str) -> Markup:
    scales = _scales(machine, points, frame)
    if scales is None:
        return Markup()
    x, y = scales
    roofs = arithmetic_roofs(machine, x, y, brief=frame.narrow)
    labels = [(x.position(value), _intensity_tick(value)) for value in x.decades()]
    return render_template(
        "roofline.svg.j2",
        frame=frame,
        name=name,
        x=x,
        y=y,
        slopes=bandwidth_slopes(machine, x, y, brief=frame.narrow),
        roofs=roofs,
        dots=_dots(points, x, y, [roof.y for roof in roofs], frame.narrow),
        ticks=place_ticks(labels, frame.left, x.end, overhang=frame.right),
        rate_tick=_rate_tick,
    )


def _dots(points: Sequence[Point], x: LogScale, y: LogScale, lines: Sequence[float], brief: bool) -> list[Dot]:
    """Place the points; labels are moved down until they overlap neither each other nor a roof."""
    heights, last = {}, -math.inf
    for point in sorted(points, key=lambda point: y.position(point.tflop_s)):
        if point.label:
            heights[id(point)] = last = _avoid_lines(max(last + LINE_HEIGHT, y.position(point.tflop_s)), lines)
    return [
        Dot(
            x.position(point.intensity),
            dot_y := y.position(point.tflop_s),
            point.radius,
            point.kind,
            point.title,
            point.short_label if brief else point.label,
            heights.get(id(point), dot_y),
        )
        for point in points
    ]


def _avoid_lines(height: float, lines: Sequence[float]) -> float:
    """Return the next lower height at which no line crosses a label."""
    for line in sorted(lines):
        if abs(height - line) < LINE_HEIGHT / 2:
            height = line + LINE_HEIGHT / 2 + 2
    return height


def _rate_tick(tflop_s: float) -> str:
    """A power of ten without decimals: `10 G`."""
    number, _, unit = rate_text(tflop_s).partition(" ")
    return f"{float(number.replace(',', '')):g} {unit.removesuffix('FLOP/s')}".strip()


def _intensity_tick(value: float) -> str:
    return f"{value:,.10f}".rstrip("0").rstrip(".")


def _points(diagnosis: Diagnosis) -> list[Point]:
    """Points of the operators, largest first, then of the fused floor and the whole program, drawn on top."""
    placed = sorted(filter(_is_placeable, diagnosis.operators), key=lambda row: -row.time_us)
    return [_operator_point(row) for row in placed[:MAX_DOTS]] + _program_points(diagnosis)


def _is_placeable(row: OperatorSummary) -> bool:
    return row.flops > 0 and row.bytes > 0 and row.time_us > 0


def _operator_point(row: OperatorSummary) -> Point:
    radius = max(SMALLEST_DOT, LARGEST_DOT * math.sqrt(min(max(row.share, 0.0), 1.0)))
    rate = row.flops / row.time_us / 1e6
    title = (
        f"{format.operator_name(row)}: {time_text(row.time_us)}, {percent_text(row.share)} of the time, "
        f"{format.intensity_text(row)} FLOP/byte, {rate_text(rate)}, "
        f"{format.ratio_text(row.time_us, row.floor_us)} floor"
    )
    return Point(row.flops / row.bytes, rate, radius, "operator", title)


def _program_points(diagnosis: Diagnosis) -> list[Point]:
    work, spent_us, fused_us = diagnosis.work, format.current_time_us(diagnosis), diagnosis.floors.fused_us
    if min(work.flops, work.bytes_as_written, work.bytes_fused, spent_us, fused_us) <= 0:
        return []
    fused_rate, program_rate = work.flops / fused_us / 1e6, work.flops / spent_us / 1e6
    label = "predicted, as written" if diagnosis.time_us is None else "whole program"
    fused_title = f"fused floor: {time_text(fused_us)}, {rate_text(fused_rate)}"
    program_title = f"{label}: {time_text(spent_us)}, {rate_text(program_rate)}"
    return [
        Point(work.flops / work.bytes_fused, fused_rate, 6.0, "goal", fused_title),
        Point(work.flops / work.bytes_as_written, program_rate, 6.5, "whole", program_title),
    ]


def _scales(machine: Machine, points: list[Point], frame: RooflineFrame) -> tuple[LogScale, LogScale] | None:
    """Axes that include every dot, every roof and the ridge point of main memory, with space for labels."""
    rates = [rate for table in (machine.matrix_tflop_s, machine.vector_tflop_s) for rate in table.values() if rate > 0]
    bandwidths = [rate for level in machine.levels if (rate := format.max_bandwidth_gb_s(level))]
    if not rates or not bandwidths:
        return None
    ridge = max(rates) * 1e3 / min(bandwidths)
    label_space = [point.intensity * (20 if point.intensity > ridge / 3 else 1) for point in points]
    low_x, high_x = padded_range([ridge * 5, *label_space, *(point.intensity for point in points)], decades=0.5)
    low_x = min(low_x / 4, min(rates) * 1e3 / max(bandwidths) / 10)
    low_y, high_y = padded_range([max(rates), min(rates) / 10, *(point.tflop_s for point in points)], decades=0.25)
    low_y = max(min(low_y, low_x * min(bandwidths) / 2e3), low_y / 30)
    return (
        LogScale(low_x, high_x, frame.left, frame.width - frame.right),
        LogScale(low_y, high_y, frame.height - frame.bottom, frame.top),
    )
