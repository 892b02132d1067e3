"""The roofline: what the machine allows at every FLOP per byte, and where the program stands under it.

Slopes are the bandwidths of the memory levels, each with its fastest mix of reads and writes; flat roofs are the
arithmetic rates per dtype. A dot is an operator, its area the operator's time. Both axes count decades.
Source: Williams, Waterman, Patterson 2009, doi:10.1145/1498765.1498785.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from markupsafe import Markup

from kernelwright.core.records import Diagnosis, Machine, OperatorReading
from kernelwright.core.units import bandwidth_text, count_text, percent_text, rate_text, time_text
from kernelwright.report import words
from kernelwright.report.axes import LogScale, around
from kernelwright.report.drawing import render

LARGEST_DOT, SMALLEST_DOT = 13.0, 3.5
LABEL_HEIGHT = 13.0
MOST_DOTS = 200


@dataclass(frozen=True)
class Slope:
    """One memory level as a line, with its label along it at `angle` degrees."""

    x1: float
    y1: float
    x2: float
    y2: float
    angle: float
    label: str
    title: str
    main: bool


@dataclass(frozen=True)
class Roof:
    """One arithmetic rate as a flat line from where the fastest memory meets it; an empty label was merged away."""

    x1: float
    x2: float
    y: float
    label: str
    title: str


@dataclass(frozen=True)
class Dot:
    x: float
    y: float
    radius: float
    kind: str
    title: str


@dataclass(frozen=True)
class Frame:
    """The drawing's size and the box that the axes enclose."""

    width: int
    height: int
    left: int = 50
    top: int = 14
    right: int = 14
    bottom: int = 46


WIDE, NARROW = Frame(760, 430), Frame(380, 400)


def roofline(machine: Machine, diagnosis: Diagnosis | None = None) -> Markup:
    """The chart as inline SVG, once for wide paper and once for narrow; the style sheet shows one of them.

    Empty when the machine has no bandwidth or no arithmetic rate to draw.
    """
    return _draw(machine, diagnosis, WIDE, "wide") + _draw(machine, diagnosis, NARROW, "narrow")


def left_out(diagnosis: Diagnosis) -> int:
    """How many rows of the operator table have no place on two logarithmic axes."""
    return sum(not (row.flops and row.bytes and row.time_us > 0) for row in diagnosis.operators)


def _draw(machine: Machine, diagnosis: Diagnosis | None, frame: Frame, name: str) -> Markup:
    points = _points(diagnosis) if diagnosis else []
    x, y = _scales(machine, points, frame)
    if not x or not y:
        return Markup()
    return render(
        "roofline.svg.j2",
        frame=frame,
        name=name,
        x=x,
        y=y,
        slopes=_slopes(machine, x, y),
        roofs=_roofs(machine, x, y),
        dots=[Dot(x.at(i), y.at(rate), radius, kind, title) for i, rate, radius, kind, title in points],
        rate_tick=_rate_tick,
        intensity_tick=lambda value: f"{value:,.10f}".rstrip("0").rstrip("."),
    )


def _rate_tick(tflop_s: float) -> str:
    """A power of ten without decimals: `10 G`."""
    number, _, unit = count_text(tflop_s * 1e12).partition(" ")
    return f"{float(number.replace(',', '')):g} {unit}".strip()


def _points(diagnosis: Diagnosis) -> list[tuple[float, float, float, str, str]]:
    """(FLOP per byte, TFLOP/s, radius, kind, title) of every operator, largest first, and of the whole at the end."""
    found = []
    longest = max((row.time_us for row in diagnosis.operators), default=0.0)
    for row in diagnosis.operators:
        if row.flops and row.bytes and row.time_us > 0:
            radius = max(SMALLEST_DOT, LARGEST_DOT * math.sqrt(row.time_us / longest))
            found.append(
                (row.flops / row.bytes, row.flops / row.time_us / 1e6, radius, "operator", _operator_title(row))
            )
    found = sorted(found, key=lambda point: -point[2])[:MOST_DOTS]
    work, spent_us = diagnosis.work, words.now_us(diagnosis)
    if work.flops and work.bytes_as_written and work.bytes_fused and spent_us > 0 and diagnosis.floors.fused_us > 0:
        goal = work.flops / diagnosis.floors.fused_us / 1e6
        here = work.flops / spent_us / 1e6
        found.append((work.flops / work.bytes_fused, goal, 6.0, "goal", f"fused floor: {time_text(diagnosis.floors.fused_us)}, {rate_text(goal)}"))  # fmt: skip
        said = "predicted, as written" if diagnosis.time_us is None else "the whole program now"
        found.append((work.flops / work.bytes_as_written, here, 6.5, "whole", f"{said}: {time_text(spent_us)}, {rate_text(here)}"))  # fmt: skip
    return found


def _operator_title(row: OperatorReading) -> str:
    rate = rate_text(row.flops / row.time_us / 1e6)
    return (
        f"{words.operator_name(row)}: {time_text(row.time_us)}, {percent_text(row.share)} of the time, "
        f"{words.intensity_text(row)} FLOP/byte, {rate}, {words.ratio_text(row.time_us, row.floor_us)} its floor"
    )


def _scales(machine: Machine, points: list, frame: Frame) -> tuple[LogScale | None, LogScale | None]:
    """Axes that hold every dot, the ridge of every roof with main memory, and every roof."""
    rates = [*machine.matrix_tflop_s.values(), *machine.vector_tflop_s.values()]
    bandwidths = [words.best_gb_s(level) for level in machine.levels if words.best_gb_s(level)]
    if not rates or not bandwidths:
        return None, None
    ridge = max(rates) * 1e3 / min(bandwidths)
    low_x, high_x = around([ridge, *(point[0] for point in points)], decades=0.5)
    low_x = min(low_x, min(rates) * 1e3 / max(bandwidths) / 10)
    low_y, high_y = around([max(rates), min(rates) / 10, *(point[1] for point in points)], decades=0.25)
    low_y = max(min(low_y, low_x * min(bandwidths) / 1e3), low_y / 30)
    return (
        LogScale(low_x, high_x, frame.left, frame.width - frame.right),
        LogScale(low_y, high_y, frame.height - frame.bottom, frame.top),
    )


def _slopes(machine: Machine, x: LogScale, y: LogScale) -> list[Slope]:
    top = max([*machine.matrix_tflop_s.values(), *machine.vector_tflop_s.values()])
    found = []
    angle = round(math.degrees(math.atan2(y.per_decade, x.per_decade)), 2)
    for level in machine.levels:
        if not (rate := words.best_gb_s(level)):
            continue
        start = max(x.low, y.low * 1e3 / rate)
        end = min(x.high, top * 1e3 / rate)
        if end <= start:
            continue
        mixes = (
            ("read", level.read_gb_s),
            ("write", level.write_gb_s),
            ("copy", level.copy_gb_s),
            ("triad", level.triad_gb_s),
        )
        title = f"{words.plain(level.name)}: " + ", ".join(f"{mix} {bandwidth_text(r)}" for mix, r in mixes if r)
        ends = (x.at(start), y.at(start * rate / 1e3), x.at(end), y.at(end * rate / 1e3))
        label = f"{words.plain(level.name)} {bandwidth_text(rate)}"
        found.append(Slope(*ends, angle, label, title, level is machine.levels[-1]))
    return found


def _roofs(machine: Machine, x: LogScale, y: LogScale) -> list[Roof]:
    """Flat lines, highest first; roofs too close for two labels share the label of the highest."""
    fastest = max(words.best_gb_s(level) for level in machine.levels)
    named = [(rate, name, "products") for name, rate in machine.matrix_tflop_s.items()]
    named += [(rate, name, "other arithmetic") for name, rate in machine.vector_tflop_s.items()]
    groups: list[list[tuple[float, str, str]]] = []
    for entry in sorted(named, reverse=True):
        if groups and y.at(entry[0]) - y.at(groups[-1][0][0]) < LABEL_HEIGHT:
            groups[-1].append(entry)
        else:
            groups.append([entry])
    found = []
    for group in groups:
        for i, (rate, name, what) in enumerate(group):
            label = "" if i else _roof_label(group)
            start = max(x.low, rate * 1e3 / fastest)
            found.append(Roof(x.at(start), x.end, y.at(rate), label, f"{words.plain(name)} {what}: {rate_text(rate)}"))
    return found


def _roof_label(group: list[tuple[float, str, str]]) -> str:
    """`bfloat16 771, float16 765 TFLOP/s`, or with the count of the rest when there are more than two."""
    texts = [
        f"{words.plain(name)}{'' if what == 'products' else ' not products'} {rate_text(rate)}"
        for rate, name, what in group
    ]
    return ", ".join(texts[:2]) + (f" and {len(texts) - 2} more" if len(texts) > 2 else "")
