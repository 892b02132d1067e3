"""Measured machines on disk: one file per device and software, checked when read."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path

import msgspec

from kernelwright.core.cache import cache_dir, digest, write_atomic
from kernelwright.core.records import Machine, MemoryLevel

DISTURBED = "other programs used the CPU meanwhile: these ceilings may be too low, and are measured again next time"
"""The note of a measurement that is not final."""
STILL_DISTURBED = (
    "other programs used the CPU during both measurements: these ceilings may be too low (kw machine --remeasure)"
)
"""The note of a second measurement that was no quieter: a box that is never quiet must not pay again and again."""
BANDWIDTH_FIELDS = ("read_gb_s", "write_gb_s", "copy_gb_s", "triad_gb_s")
COST_FIELDS = ("dispatch_us", "launch_us", "graph_launch_us", "page_fault_us_per_mib")
MeasurementKey = dict[str, str]
"""What a measurement holds for: device, threads, software. Anything else in it means measuring again."""


@cache
def method_digest() -> str:
    """Changes when the way of measuring changes, so that figures of the old way are measured again."""
    folder = Path(__file__).parent
    return digest(*((folder / name).read_bytes() for name in ("probes.py", "caches.py", "cpu.py", "cuda.py")))


def load(key: MeasurementKey) -> Machine | None:
    """The machine that was measured under `key`; None when there is none, or when its file is not what was written."""
    try:
        checksum, _, text = _path(key).read_bytes().partition(b"\n")
        if checksum.decode() != digest(text):
            return None
        machine = msgspec.json.decode(text, type=Machine)
    except (OSError, UnicodeDecodeError, msgspec.MsgspecError):
        return None
    return machine if is_valid(machine) else None


def save(key: MeasurementKey, machine: Machine) -> None:
    """Writes `machine` for `key`, whole or not at all."""
    text = msgspec.json.format(msgspec.json.encode(machine), indent=2)
    write_atomic(_path(key), digest(text).encode() + b"\n" + text)


def is_provisional(machine: Machine) -> bool:
    """Whether it was measured while other programs used the device, so that another try may see more."""
    return DISTURBED in machine.notes


def merge_best(earlier: Machine, later: Machine) -> Machine:
    """Figure by figure the better of two measurements of one machine: ceilings the higher, costs the lower."""
    levels = {level.name: level for level in earlier.levels}
    notes = tuple(STILL_DISTURBED if note == DISTURBED else note for note in later.notes)
    return msgspec.structs.replace(
        later,
        notes=notes,
        levels=tuple(_merge_level(levels.get(level.name, level), level) for level in later.levels),
        matrix_tflop_s=_elementwise_max(earlier.matrix_tflop_s, later.matrix_tflop_s),
        vector_tflop_s=_elementwise_max(earlier.vector_tflop_s, later.vector_tflop_s),
        special_tflop_s=_elementwise_max(earlier.special_tflop_s, later.special_tflop_s),
        **{name: _min_known(getattr(earlier, name), getattr(later, name)) for name in COST_FIELDS},
    )


def _merge_level(earlier: MemoryLevel, later: MemoryLevel) -> MemoryLevel:
    figures = {name: (getattr(earlier, name), getattr(later, name)) for name in BANDWIDTH_FIELDS}
    best = {name: max((gb_s for gb_s in pair if gb_s is not None), default=None) for name, pair in figures.items()}
    return msgspec.structs.replace(later, **best)


def _elementwise_max(earlier: dict[str, float], later: dict[str, float]) -> dict[str, float]:
    return {name: max(earlier.get(name, 0.0), later.get(name, 0.0)) for name in earlier | later}


def _min_known(earlier: float | None, later: float | None) -> float | None:
    return min((cost for cost in (earlier, later) if cost is not None), default=None)


def is_valid(machine: Machine) -> bool:
    """Whether every figure is a positive number and main memory has a bandwidth."""
    figures = (getattr(level, name) for level in machine.levels for name in BANDWIDTH_FIELDS)
    bandwidths = [figure for figure in figures if figure is not None]
    rates = [*machine.matrix_tflop_s.values(), *machine.vector_tflop_s.values()]
    positive = all(math.isfinite(figure) and figure > 0 for figure in [*bandwidths, *rates])
    return positive and bool(machine.levels) and machine.levels[-1].copy_gb_s is not None and bool(rates)


def _path(key: MeasurementKey) -> Path:
    return cache_dir("machine") / f"{digest(*(f'{name}={key[name]}' for name in sorted(key)))}.json"
