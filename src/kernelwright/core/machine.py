"""Machines with their measured ceilings and datasheets."""

from __future__ import annotations

from typing import Literal

import msgspec

from kernelwright.core.record import Record
from kernelwright.core.timing import Device

Provenance = Literal["measured", "datasheet"]


class MemoryLevel(Record, frozen=True, kw_only=True):
    """One level of the memory hierarchy; bandwidths count the bytes that the program reads and writes."""

    name: str
    capacity_bytes: int | None = None
    read_gb_s: float | None = None
    write_gb_s: float | None = None
    copy_gb_s: float | None = None
    triad_gb_s: float | None = None


class Spec(Record, frozen=True, kw_only=True):
    """A datasheet: dense peaks only, as published by the vendor."""

    name: str
    title: str
    device: Device
    dram_gb_s: float
    dram_bytes: int
    cache_bytes: int | None
    multiprocessors: int | None
    matrix_tflop_s: dict[str, float]
    vector_tflop_s: dict[str, float]
    source: str


class Machine(Record, frozen=True, kw_only=True):
    """A device with its ceilings.

    `levels` is ordered from the nearest cache to main memory. `matrix_tflop_s` is the rate of a large matrix product
    per dtype, `vector_tflop_s` that of multiply-adds outside matrix products. `special_tflop_s` is the rate of
    `torch.exp` at 8 FLOPs per element: it can be a bottleneck but sets no floor, since faster code exists. `spec` is
    the datasheet, if known.
    """

    name: str
    device: Device
    provenance: Provenance
    levels: tuple[MemoryLevel, ...]
    matrix_tflop_s: dict[str, float]
    vector_tflop_s: dict[str, float] = msgspec.field(default_factory=dict)
    special_tflop_s: dict[str, float] = msgspec.field(default_factory=dict)
    threads: int | None = None
    multiprocessors: int | None = None
    dispatch_us: float | None = None
    launch_us: float | None = None
    graph_launch_us: float | None = None
    page_fault_us_per_mib: float | None = None
    spec: Spec | None = None
    software: dict[str, str] = msgspec.field(default_factory=dict)
    notes: tuple[str, ...] = ()
