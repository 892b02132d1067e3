"""Measured machines on disk: one file per device and software, checked when read."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path

import msgspec

from kernelwright.core.cache import cache_dir, digest, write_atomic
from kernelwright.core.records import Machine

Key = dict[str, str]
"""What a measurement holds for: device, threads, software. Anything else in it means measuring again."""


@cache
def method_digest() -> str:
    """Changes when the way of measuring changes, so that figures of the old way are measured again."""
    folder = Path(__file__).parent
    return digest(*((folder / name).read_bytes() for name in ("rates.py", "caches.py", "cpu.py", "cuda.py")))


def load(key: Key) -> Machine | None:
    """The machine that was measured under `key`; None when there is none, or when its file is not what was written."""
    try:
        checksum, _, text = _path(key).read_bytes().partition(b"\n")
        if checksum.decode() != digest(text):
            return None
        machine = msgspec.json.decode(text, type=Machine)
    except (OSError, UnicodeDecodeError, msgspec.MsgspecError):
        return None
    return machine if sound(machine) else None


def save(key: Key, machine: Machine) -> None:
    """Writes `machine` for `key`, whole or not at all."""
    text = msgspec.json.format(msgspec.json.encode(machine), indent=2)
    write_atomic(_path(key), digest(text).encode() + b"\n" + text)


def sound(machine: Machine) -> bool:
    """Whether every figure is a positive number and main memory has a bandwidth."""
    bandwidths = [
        figure
        for level in machine.levels
        for figure in (level.read_gb_s, level.write_gb_s, level.copy_gb_s, level.triad_gb_s)
        if figure is not None
    ]
    rates = [*machine.matrix_tflop_s.values(), *machine.vector_tflop_s.values()]
    positive = all(math.isfinite(figure) and figure > 0 for figure in [*bandwidths, *rates])
    return positive and bool(machine.levels) and machine.levels[-1].copy_gb_s is not None and bool(rates)


def _path(key: Key) -> Path:
    return cache_dir("machine") / f"{digest(*(f'{name}={key[name]}' for name in sorted(key)))}.json"
