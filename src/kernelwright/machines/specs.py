"""The datasheets: dense figures as the vendors print them, read from `specs.json` when first asked for.

`float32` in `matrix_tflop_s` is what a strict FP32 product reaches, so the FMA rate; `tfloat32` is the tensor cores
on FP32 operands. `cache_flush_bytes` is the last cache before memory: L2, or the memory-side cache of an MI300X.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import msgspec

from kernelwright.core.errors import NotFoundError
from kernelwright.core.records import Machine, MemoryLevel, Record, Spec

TYPICAL_LAUNCH_US = 5.0
TYPICAL_GRAPH_LAUNCH_US = 0.93
"""Measured on one H200 with torch 2.11; no datasheet says what a launch costs, and it is the host that pays."""


class _SpecEntry(Record, frozen=True, kw_only=True):
    """A datasheet and the name (a regular expression) by which the running device calls itself."""

    device_name: str
    spec: Spec


@cache
def _load_entries() -> tuple[_SpecEntry, ...]:
    text = (Path(__file__).parent / "specs.json").read_bytes()
    return msgspec.json.decode(text, type=tuple[_SpecEntry, ...])


def spec_names() -> tuple[str, ...]:
    """Every name that `--spec` takes."""
    return tuple(entry.spec.name for entry in _load_entries())


def get_spec(name: str) -> Spec:
    """The datasheet of one name; case, spaces and underscores do not matter.

    Raises:
        NotFoundError: nobody wrote that one down.
    """
    wanted = re.sub(r"[ _]+", "-", name.strip().lower())
    for entry in _load_entries():
        if entry.spec.name == wanted:
            return entry.spec
    known = ", ".join(spec_names())
    raise NotFoundError(f"no datasheet is named {name!r}; there are {known}", next=f"--spec with one of: {known}")


def match_spec(device_name: str, multiprocessors: int) -> Spec | None:
    """The datasheet of a running CUDA device, by its name and its count of multiprocessors; None when none fits.

    A part with another memory (A100 40 GB), another power limit (H100 NVL) or with multiprocessors switched off
    (a MIG slice, RTX 4090 D) has other figures, so it gets no datasheet rather than a wrong one.
    """
    for entry in _load_entries():
        if re.search(entry.device_name, device_name) and entry.spec.multiprocessors == multiprocessors:
            return entry.spec
    return None


def machine_from_spec(name: str) -> Machine:
    """A machine that is not here, from its datasheet alone; nothing is measured and no GPU is needed.

    Raises:
        NotFoundError: no datasheet has that name.
    """
    spec = get_spec(name)
    typical = spec.device == "cuda"
    launch_us, graph_us = (TYPICAL_LAUNCH_US, TYPICAL_GRAPH_LAUNCH_US) if typical else (None, None)
    notes = ["datasheet peaks: real programs reach 70 to 95 % of them"]
    if typical:
        notes.append("launch costs are typical of a host with an H200, not from the datasheet")
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
    """The last cache, whose bandwidth no datasheet gives, and the memory, whose peak counts for every mix."""
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
