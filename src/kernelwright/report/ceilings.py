"""Lines of a roofline: bandwidth slopes of the memory levels and roofs of the arithmetic rates."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from kernelwright.core.machine import Machine
from kernelwright.core.units import bandwidth_text, rate_text
from kernelwright.report import format
from kernelwright.report.axes import LogScale

MIN_ROOF_GAP, MIN_SLOPE_GAP = 17.0, 11.0
"""Drawing units between lines; closer lines share a label."""


@dataclass(frozen=True)
class Slope:
    """The line of a memory level, with its label rotated by `angle` degrees; empty if merged into another label.

    `height` is its offset perpendicular to the line, `key_text` its entry in the key.
    """

    x1: float
    y1: float
    x2: float
    y2: float
    angle: float
    height: float
    name: str
    key_text: str
    title: str
    is_main_memory: bool
    label: str = ""


@dataclass(frozen=True)
class Roof:
    """The line of an arithmetic rate, from its intersection with the fastest memory; its label may be merged.

    `key_text` is its entry in the key, with the rate.
    """

    x1: float
    x2: float
    y: float
    label: str
    key_text: str
    title: str


def bandwidth_slopes(machine: Machine, x: LogScale, y: LogScale, *, brief: bool = False) -> list[Slope]:
    """Return the lines of the memory levels, fastest first; lines that are close share a label.

    Args:
        brief: labels hold names only, for the narrow layout.
    """
    top = max([*machine.matrix_tflop_s.values(), *machine.vector_tflop_s.values()])
    angle = round(math.degrees(math.atan2(y.per_decade, x.per_decade)), 2)
    slopes = []
    for level in machine.levels:
        rate = format.max_bandwidth_gb_s(level)
        start, end = (max(x.low, y.low * 1e3 / rate), min(x.high, top * 1e3 / rate)) if rate else (0.0, 0.0)
        if end <= start:
            continue
        ends = (x.position(start), y.position(start * rate / 1e3), x.position(end), y.position(end * rate / 1e3))
        mixes = ", ".join(f"{mix} {bandwidth_text(gb_s)}" for mix, gb_s in format.bandwidths_by_mix(level) if gb_s)
        name, main = format.sanitize_line(level.name), level is machine.levels[-1]
        height = math.log10(rate) * abs(y.per_decade) * math.cos(math.radians(angle))
        slopes.append(Slope(*ends, angle, height, name, bandwidth_text(rate), f"{name}: {mixes}", main))
    return _add_labels(sorted(slopes, key=lambda slope: (slope.is_main_memory, -slope.height)), brief)


def _add_labels(slopes: list[Slope], brief: bool) -> list[Slope]:
    """Label main memory below its line; other levels above, with one label for lines that are close."""
    groups: list[list[Slope]] = []
    for slope in slopes:
        if groups and not slope.is_main_memory and groups[-1][-1].height - slope.height < MIN_SLOPE_GAP:
            groups[-1].append(slope)
        else:
            groups.append([slope])
    return [part for group in groups for part in _share_label(group, brief)]


def _share_label(group: list[Slope], brief: bool) -> list[Slope]:
    names, rate = ", ".join(slope.name for slope in group), group[0].key_text
    text = f"{names}{' up to' if len({slope.key_text for slope in group}) > 1 else ''} {rate}"
    first = replace(group[0], label=names if brief else text, key_text=text)
    return [first, *(replace(slope, key_text="") for slope in group[1:])]


def arithmetic_roofs(machine: Machine, x: LogScale, y: LogScale, *, brief: bool = False) -> list[Roof]:
    """Return the lines of the arithmetic rates, highest first; lines that are close share a label."""
    fastest = max(format.max_bandwidth_gb_s(level) for level in machine.levels)
    named = [(rate, name, "matrix") for name, rate in machine.matrix_tflop_s.items() if rate > 0]
    named += [(rate, name, "vector") for name, rate in machine.vector_tflop_s.items() if rate > 0]
    groups: list[list[tuple[float, str, str]]] = []
    for entry in sorted(named, reverse=True):
        if groups and y.position(entry[0]) - y.position(groups[-1][-1][0]) < MIN_ROOF_GAP:
            groups[-1].append(entry)
        else:
            groups.append([entry])
    roofs = []
    for group in groups:
        for i, (rate, name, unit) in enumerate(group):
            key_text = "" if i else _roof_label(group)
            label = _brief_label(group) if brief and key_text else key_text
            title = f"{format.sanitize_line(name)} {unit}: {rate_text(rate)}"
            start = x.position(max(x.low, rate * 1e3 / fastest))
            roofs.append(Roof(start, x.end, y.position(rate), label, key_text, title))
    return roofs


def _roof_label(group: list[tuple[float, str, str]]) -> str:
    """`bfloat16, float16 up to 771 TFLOP/s`, with `and N more` after two names."""
    dtypes = _dtypes(group)
    more = f" and {len(dtypes) - 2} more" if len(dtypes) > 2 else ""
    return f"{', '.join(dtypes[:2])}{more}{' up to' if len(dtypes) > 1 else ''} {rate_text(group[0][0])}"


def _brief_label(group: list[tuple[float, str, str]]) -> str:
    """`bfloat16 +1`."""
    first, *rest = _dtypes(group)
    return f"{first} +{len(rest)}" if rest else first


def _dtypes(group: list[tuple[float, str, str]]) -> list[str]:
    return [f"{'' if unit == 'matrix' else 'vector '}{format.sanitize_line(name)}" for _, name, unit in group]
