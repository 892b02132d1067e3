"""The lines of a roofline: what each memory level and each arithmetic unit of a machine allows."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from kernelwright.core.records import Machine
from kernelwright.core.units import bandwidth_text, rate_text
from kernelwright.report import format
from kernelwright.report.axes import LogScale

MIN_ROOF_GAP, MIN_SLOPE_GAP = 17.0, 11.0
"""Closer lines share a label."""


@dataclass(frozen=True)
class Slope:
    """One memory level as a line, with its label along it at `angle` degrees; an empty label was merged away.

    `height` is how far across its direction it lies, and `key_text` what the key says of it.
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
    """One arithmetic rate as a flat line from where the fastest memory meets it; an empty label was merged away.

    `key_text` is what the key says of it, with the rate.
    """

    x1: float
    x2: float
    y: float
    label: str
    key_text: str
    title: str


def bandwidth_slopes(machine: Machine, x: LogScale, y: LogScale, *, brief: bool = False) -> list[Slope]:
    """The memory levels, fastest first; levels too close for two labels share the label of the first.

    Args:
        brief: labels hold names only, for narrow paper.
    """
    top = max([*machine.matrix_tflop_s.values(), *machine.vector_tflop_s.values()])
    angle = round(math.degrees(math.atan2(y.per_decade, x.per_decade)), 2)
    found = []
    for level in machine.levels:
        rate = format.max_bandwidth_gb_s(level)
        start, end = (max(x.low, y.low * 1e3 / rate), min(x.high, top * 1e3 / rate)) if rate else (0.0, 0.0)
        if end <= start:
            continue
        ends = (x.position(start), y.position(start * rate / 1e3), x.position(end), y.position(end * rate / 1e3))
        mixes = ", ".join(f"{mix} {bandwidth_text(known)}" for mix, known in format.bandwidths_by_mix(level) if known)
        name, main = format.sanitize_line(level.name), level is machine.levels[-1]
        height = math.log10(rate) * abs(y.per_decade) * math.cos(math.radians(angle))
        found.append(Slope(*ends, angle, height, name, bandwidth_text(rate), f"{name}: {mixes}", main))
    return _add_labels(sorted(found, key=lambda slope: (slope.is_main_memory, -slope.height)), brief)


def _add_labels(found: list[Slope], brief: bool) -> list[Slope]:
    """Main memory has its label below its line, alone; of the others those that lie close share one above."""
    groups: list[list[Slope]] = []
    for slope in found:
        if groups and not slope.is_main_memory and groups[-1][-1].height - slope.height < MIN_SLOPE_GAP:
            groups[-1].append(slope)
        else:
            groups.append([slope])
    return [part for group in groups for part in _share_label(group, brief)]


def _share_label(group: list[Slope], brief: bool) -> list[Slope]:
    names, known = ", ".join(slope.name for slope in group), group[0].key_text
    said = f"{names}{' up to' if len({slope.key_text for slope in group}) > 1 else ''} {known}"
    first = replace(group[0], label=names if brief else said, key_text=said)
    return [first, *(replace(slope, key_text="") for slope in group[1:])]


def arithmetic_roofs(machine: Machine, x: LogScale, y: LogScale, *, brief: bool = False) -> list[Roof]:
    """Flat lines, highest first; roofs too close for two labels share the label of the highest."""
    fastest = max(format.max_bandwidth_gb_s(level) for level in machine.levels)
    named = [(rate, name, "products") for name, rate in machine.matrix_tflop_s.items() if rate > 0]
    named += [(rate, name, "other arithmetic") for name, rate in machine.vector_tflop_s.items() if rate > 0]
    groups: list[list[tuple[float, str, str]]] = []
    for entry in sorted(named, reverse=True):
        if groups and y.position(entry[0]) - y.position(groups[-1][-1][0]) < MIN_ROOF_GAP:
            groups[-1].append(entry)
        else:
            groups.append([entry])
    found = []
    for group in groups:
        for i, (rate, name, what) in enumerate(group):
            known = "" if i else _roof_label(group)
            label = _brief_label(group) if brief and known else known
            title = f"{format.sanitize_line(name)} {what}: {rate_text(rate)}"
            found.append(
                Roof(x.position(max(x.low, rate * 1e3 / fastest)), x.end, y.position(rate), label, known, title)
            )
    return found


def _roof_label(group: list[tuple[float, str, str]]) -> str:
    """`bfloat16, float16 up to 771 TFLOP/s`; of more than two the rest is only counted."""
    dtypes = _dtypes(group)
    more = f" and {len(dtypes) - 2} more" if len(dtypes) > 2 else ""
    return f"{', '.join(dtypes[:2])}{more}{' up to' if len(dtypes) > 1 else ''} {rate_text(group[0][0])}"


def _brief_label(group: list[tuple[float, str, str]]) -> str:
    """`bfloat16 +1`."""
    first, *rest = _dtypes(group)
    return f"{first} +{len(rest)}" if rest else first


def _dtypes(group: list[tuple[float, str, str]]) -> list[str]:
    return [f"{'' if what == 'products' else 'vector '}{format.sanitize_line(name)}" for _, name, what in group]
