"""GPU datasheets: dense peaks as published by the vendors, read from `specs.json` on first use.

`float32` in `matrix_tflop_s` is the rate of a strict FP32 matmul, so the FMA rate; `tfloat32` is the tensor cores on
FP32 operands. `cache_bytes` is the last cache before memory: L2, or the memory-side cache of an MI300X.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import msgspec

from kernelwright.core.errors import NotFoundError
from kernelwright.core.machine import Machine, MemoryLevel, Spec
from kernelwright.core.record import Record

TYPICAL_LAUNCH_US = 5.0
TYPICAL_GRAPH_LAUNCH_US = 0.93
"""Measured on one H200 with torch 2.11; datasheets do not state launch costs, which depend on the host."""


class _SpecEntry(Record, frozen=True, kw_only=True):
    """A datasheet and a regular expression for the device's name as the driver reports it."""

    device_name: str
    spec: Spec


@cache
def _load_entries() -> tuple[_SpecEntry, ...]:
    text = (Path(__file__).parent / "specs.json").read_bytes()
    return msgspec.json.decode(text, type=tuple[_SpecEntry, ...])


def spec_names() -> tuple[str, ...]:
    """All names that `--spec` accepts."""
    return tuple(entry.spec.name for entry in _load_entries())


def get_spec(name: str) -> Spec:
    """The datasheet of a GPU by name; case, spaces and underscores do not matter.

    Raises:
        NotFoundError: no datasheet has that name.
    """
    normalized = re.sub(r"[ _]+", "-", name.strip().lower())
    for entry in _load_entries():
        if entry.spec.name == normalized:
            return entry.spec
    known = ", ".join(spec_names())
    raise NotFoundError(f"no datasheet is named {name!r}", next=f"use --spec with one of: {known}")


def match_spec(device_name: str, multiprocessors: int) -> Spec | None:
    """The datasheet of a CUDA device by its name and number of multiprocessors; None if none matches.

    A part with different memory (A100 40 GB), power limit (H100 NVL) or number of enabled multiprocessors (a MIG slice,
    RTX 4090 D) has different peaks, so it gets no datasheet rather than a wrong one.
    """
    for entry in _load_entries():
        if re.search(entry.device_name, device_name) and entry.spec.multiprocessors == multiprocessors:
            return entry.spec
    return None


def machine_from_spec(name: str) -> Machine:
    """A machine from its datasheet alone; nothing is measured and no GPU is needed.

    Raises:
        NotFoundError: no datasheet has that name.
    """
    spec = get_spec(name)
    typical = spec.device == "cuda"
    launch_us, graph_us = (TYPICAL_LAUNCH_US, TYPICAL_GRAPH_LAUNCH_US) if typical else (None, None)
    notes = ["datasheet peaks: real programs reach 70 to 95 % of them"]
    if typical:
        notes.append("launch costs are those of a typical host of an H200, not from the datasheet")
    return Machine(
        name=spec.title,
        device=spec.device,
        provenance="datasheet",
        levels=_levels(spec),
        matrix_tflop_s=spec.matrix_tflop_s,
        vector_tflop_s=spec.vector_tflop_s,
        multiprocessors=spec.multiprocessors,
        dispatch_us=launch_us,
        launch_us=launch_us,
        graph_launch_us=graph_us,
        spec=spec,
        notes=tuple(notes),
    )


def _levels(spec: Spec) -> tuple[MemoryLevel, ...]:
    """The last cache, whose bandwidth no datasheet states, and DRAM with its peak for every access pattern."""
    peak = spec.dram_gb_s
    memory = MemoryLevel(
        name="DRAM",
        capacity_bytes=spec.dram_bytes,
        read_gb_s=peak,
        write_gb_s=peak,
        copy_gb_s=peak,
        triad_gb_s=peak,
    )
    return (memory,) if spec.cache_bytes is None else (MemoryLevel(name="L2", capacity_bytes=spec.cache_bytes), memory)
