"""Minimum time for some work on a machine: the floor from its ceilings, and the bound from its datasheet."""

from __future__ import annotations

from typing import overload

from kernelwright.core.diagnosis import Floor
from kernelwright.core.errors import InternalError
from kernelwright.core.machine import Machine, MemoryLevel, Spec
from kernelwright.core.work import Work

_RATE_AT_LEAST = {
    "float8_e4m3fn": ("float16", "bfloat16", "float32"),
    "float8_e5m2": ("float8_e4m3fn", "float16", "bfloat16", "float32"),
    "float16": ("float32",),
    "bfloat16": ("float32",),
    "tfloat32": ("float32",),
}
"""Formats that are at most as fast as a dtype: the same unit runs both, or they hold all of its values, so that its
operands can be widened. A torch build without half-precision matmul would otherwise set a ceiling that is a hundred
times too low."""

_FALLBACK_DTYPES = {"uint8": ("int8",), "float16": ("bfloat16",), "bfloat16": ("float16",), "complex64": ("float32",)}
_FALLBACK_DTYPES |= {"complex128": ("float64",)}


def floor(work: Work, machine: Machine, *, footprint_bytes: int | None = None, cold_bytes: int | None = None) -> Floor:
    """Minimum time that the ceilings of `machine` allow for `work`, and the ceiling that limits it.

    Args:
        work: FLOPs per unit, bytes read and written.
        machine: measured or from a datasheet.
        footprint_bytes: distinct bytes touched; default: the bytes of `work`.
        cold_bytes: bytes that must be read from DRAM; the others come from the smallest level that holds the footprint
            and has a known bandwidth. None: all come from DRAM.
    Raises:
        InternalError: the machine has no DRAM bandwidth or no arithmetic rate.
    """
    footprint = work.total_bytes if footprint_bytes is None else footprint_bytes
    level = machine.levels[-1] if cold_bytes is None else _smallest_level_for(machine, footprint)
    memory_us = _memory_us(work, level)
    cold_us = _memory_us(Work(bytes_read=cold_bytes or 0), machine.levels[-1])
    if cold_us > memory_us:
        memory_us, level = cold_us, machine.levels[-1]
    parts_us = {unit: flops / _rate_tflop_s(machine, unit) / 1e6 for unit, flops in work.flops.items() if flops}
    compute_us = sum(parts_us.values())
    limiter = level.name if memory_us >= compute_us else max(parts_us, key=lambda unit: parts_us[unit])
    return Floor(
        time_us=max(memory_us, compute_us),
        limiter=limiter,
        memory_us=memory_us,
        compute_us=compute_us,
        provenance=machine.provenance,
    )


@overload
def datasheet_bound_us(work: Work, spec: Spec) -> float:
    """With a datasheet."""


@overload
def datasheet_bound_us(work: Work, spec: None) -> None:
    """Without a datasheet."""


def datasheet_bound_us(work: Work, spec: Spec | None) -> float | None:
    """Lower bound of any program: the compulsory bytes, less the capacity of the last-level cache, at peak bandwidth.

    FLOPs are not counted, since a rewritten program may need fewer. None without a datasheet (a CPU).
    """
    if spec is None:
        return None
    return max(0, work.total_bytes - (spec.cache_bytes or 0)) / spec.dram_gb_s / 1e3


def bandwidth_gb_s(level: MemoryLevel, written_share: float) -> float | None:
    """Bandwidth of a level for a mix in which `written_share` of the bytes is written; None if unknown.

    Measured at shares 0 (read), 1/3 (triad), 1/2 (copy) and 1 (write). The time per byte is interpolated between these;
    outside the known range the nearest value is used.
    """
    measured = ((0.0, level.read_gb_s), (1 / 3, level.triad_gb_s), (0.5, level.copy_gb_s), (1.0, level.write_gb_s))
    known = [(share, gb_s) for share, gb_s in measured if gb_s]
    if not known:
        return None
    below = max((point for point in known if point[0] <= written_share), default=known[0])
    above = min((point for point in known if point[0] >= written_share), default=known[-1])
    if below[0] == above[0]:
        return below[1]
    weight = (written_share - below[0]) / (above[0] - below[0])
    return 1 / ((1 - weight) / below[1] + weight / above[1])


def _memory_us(work: Work, level: MemoryLevel) -> float:
    if not work.total_bytes:
        return 0.0
    gb_s = bandwidth_gb_s(level, work.bytes_written / work.total_bytes)
    if gb_s is None:
        raise InternalError(f"no bandwidth of {level.name} is known", next="kw machine --remeasure")
    return work.total_bytes / gb_s / 1e3


def _smallest_level_for(machine: Machine, footprint_bytes: int) -> MemoryLevel:
    """The smallest level with a known bandwidth that holds the footprint, else DRAM."""
    for level in machine.levels[:-1]:
        fits = level.capacity_bytes is not None and footprint_bytes <= level.capacity_bytes
        if fits and bandwidth_gb_s(level, 0.0) is not None:
            return level
    return machine.levels[-1]


def _rate_tflop_s(machine: Machine, unit: str) -> float:
    """The rate of `matrix/<dtype>`, `vector/<dtype>` or `special/<dtype>`; the last two share one unit here.

    The best of the dtype itself and of every wider format that can do the same. If none is known, in this order: a
    similar dtype; for a matmul the vector unit of that dtype, then an FP32 matmul; the FP32 vector rate (integers too);
    the fastest known rate, so that the floor is too low rather than too high.
    """
    kind, _, dtype = unit.partition("/")
    rates = machine.matrix_tflop_s if kind == "matrix" else machine.vector_tflop_s
    reachable = [rates[name] for name in (dtype, *_RATE_AT_LEAST.get(dtype, ())) if name in rates]
    if reachable:
        return max(reachable)
    for table, name in _fallback_rates(machine, kind, dtype):
        if name in table:
            return table[name]
    fastest = max([*machine.matrix_tflop_s.values(), *machine.vector_tflop_s.values()], default=0.0)
    if not fastest:
        raise InternalError(f"no arithmetic rate of {machine.name} is known", next="kw machine --remeasure")
    return fastest


def _fallback_rates(machine: Machine, kind: str, dtype: str) -> list[tuple[dict[str, float], str]]:
    """Substitutes for a rate that was not measured, in order; integers never use FP32 matrix units."""
    rates = machine.matrix_tflop_s if kind == "matrix" else machine.vector_tflop_s
    order = [(rates, name) for name in _FALLBACK_DTYPES.get(dtype, ())]
    if kind == "matrix" and not dtype.startswith(("int", "uint", "bool")):
        order += [(machine.vector_tflop_s, dtype), (rates, "float32")]
    return [*order, (machine.vector_tflop_s, "float32")]


def last_cache_bytes(machine: Machine) -> int:
    """Capacity of the largest cache of the machine; 64 MiB if unknown."""
    return max((level.capacity_bytes or 0 for level in machine.levels[:-1]), default=0) or 64 * 2**20
