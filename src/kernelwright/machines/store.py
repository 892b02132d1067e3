"""Measured machines on disk: one file per device and software version, with a checksum."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path

import msgspec

from kernelwright.core.cache import cache_dir, digest, write_atomic
from kernelwright.core.machine import Machine, MemoryLevel

DISTURBED = "other programs used the CPU: these ceilings may be too low, and are measured again next time"
"""Note of a measurement that is not final."""
STILL_DISTURBED = (
    "other programs used the CPU during both measurements: these ceilings may be too low (kw machine --remeasure)"
)
"""Note of a second disturbed measurement: a machine that is always busy must not be measured in every process."""
BANDWIDTH_FIELDS = ("read_gb_s", "write_gb_s", "copy_gb_s", "triad_gb_s")
COST_FIELDS = ("dispatch_us", "launch_us", "graph_launch_us", "page_fault_us_per_mib")
MeasurementKey = dict[str, str]
"""Device, threads and software of a measurement. It is repeated when any of them changes."""


@cache
def method_digest() -> str:
    """Digest of the measuring code, so that its changes invalidate stored measurements."""
    folder = Path(__file__).parent
    return digest(*((folder / name).read_bytes() for name in ("probes.py", "caches.py", "cpu.py", "cuda.py")))


def load(key: MeasurementKey) -> Machine | None:
    """The machine stored under `key`; None if there is none or its file is damaged."""
    try:
        checksum, _, text = _path(key).read_bytes().partition(b"\n")
        if checksum.decode() != digest(text):
            return None
        machine = msgspec.json.decode(text, type=Machine)
    except (OSError, UnicodeDecodeError, msgspec.MsgspecError):
        return None
    return machine if is_valid(machine) else None


def save(key: MeasurementKey, machine: Machine) -> None:
    """Write `machine` for `key` atomically."""
    text = msgspec.json.format(msgspec.json.encode(machine), indent=2)
    write_atomic(_path(key), digest(text).encode() + b"\n" + text)


def is_provisional(machine: Machine) -> bool:
    """Whether the measurement was disturbed, so that another one may find higher ceilings."""
    return DISTURBED in machine.notes


def merge_best(earlier: Machine, later: Machine) -> Machine:
    """The better of two measurements of one machine, value by value: higher ceilings, lower costs."""
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
    pairs = {name: (getattr(earlier, name), getattr(later, name)) for name in BANDWIDTH_FIELDS}
    best = {name: max((gb_s for gb_s in pair if gb_s is not None), default=None) for name, pair in pairs.items()}
    return msgspec.structs.replace(later, **best)


def _elementwise_max(earlier: dict[str, float], later: dict[str, float]) -> dict[str, float]:
    return {name: max(earlier.get(name, 0.0), later.get(name, 0.0)) for name in earlier | later}


def _min_known(earlier: float | None, later: float | None) -> float | None:
    return min((cost for cost in (earlier, later) if cost is not None), default=None)


def is_valid(machine: Machine) -> bool:
    """Whether every value is positive and finite, and DRAM has a bandwidth."""
    values = (getattr(level, name) for level in machine.levels for name in BANDWIDTH_FIELDS)
    bandwidths = [value for value in values if value is not None]
    rates = [*machine.matrix_tflop_s.values(), *machine.vector_tflop_s.values()]
    positive = all(math.isfinite(value) and value > 0 for value in [*bandwidths, *rates])
    return positive and bool(machine.levels) and machine.levels[-1].copy_gb_s is not None and bool(rates)


def _path(key: MeasurementKey) -> Path:
    return cache_dir("machine") / f"{digest(*(f'{name}={key[name]}' for name in sorted(key)))}.json"
