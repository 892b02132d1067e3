"""Formatting of numbers with units, shared by all tables and pages."""

from __future__ import annotations

DTYPE_BYTES = {
    "float64": 8, "int64": 8, "complex64": 8, "complex128": 16,
    "float32": 4, "int32": 4, "uint32": 4,
    "float16": 2, "bfloat16": 2, "int16": 2, "uint16": 2,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "int8": 1, "uint8": 1, "bool": 1,
}  # fmt: skip


def _scaled(value: float, steps: tuple[tuple[float, str], ...]) -> str:
    size, unit = next(((s, u) for s, u in steps if abs(value) >= s), steps[-1])
    number = value / size
    digits = 0 if abs(number) >= 100 else 1 if abs(number) >= 10 else 2
    return f"{number:,.{digits}f} {unit}"


def time_text(time_us: float) -> str:
    """Format a duration with a suitable unit: `101 ms`, `2.53 us`."""
    return _scaled(time_us, ((1e6, "s"), (1e3, "ms"), (1, "us"), (1e-3, "ns")))


def bytes_text(count: float) -> str:
    """Format a number of bytes in decimal units: `805 MB`."""
    return _scaled(count, ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "KB"), (1, "B")))


def bandwidth_text(gb_s: float) -> str:
    """Format a bandwidth in GB/s: `29.1 GB/s`, `4.25 TB/s`."""
    return _scaled(gb_s * 1e9, ((1e12, "TB/s"), (1e9, "GB/s"), (1e6, "MB/s")))


def rate_text(tflop_s: float) -> str:
    """Format an arithmetic rate in TFLOP/s: `196 GFLOP/s`, `771 TFLOP/s`."""
    return _scaled(tflop_s * 1e12, ((1e15, "PFLOP/s"), (1e12, "TFLOP/s"), (1e9, "GFLOP/s"), (1e6, "MFLOP/s")))


def count_text(count: float) -> str:
    """Format a count: `64 M`, `1.20 G`."""
    return _scaled(count, ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "K"), (1, ""))).strip()


def number_text(count: int, noun: str) -> str:
    """Format a count with its noun: `1 call`, `1,200 calls`, `3 launches`."""
    plural = "es" if noun.endswith(("ch", "sh", "s", "x")) else "s"
    return f"{count:,} {noun}{plural * (count != 1)}"


def percent_text(share: float) -> str:
    """Format a fraction as a percentage: `91 %`; with one decimal below 10 %."""
    percent = 100 * share
    return f"{percent:.1f} %" if 0 < abs(percent) < 9.95 else f"{percent:.0f} %"
