"""Benchmarks for ceilings on CPU and CUDA, and the arithmetic from times to rates.

A `Timer` returns the microseconds of one call; the caller provides it, so that tests can use a fake clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import msgspec
import torch

from kernelwright.core.machine import MemoryLevel
from kernelwright.measure.clock import BenchFn

Timer = Callable[[BenchFn], float]
STREAM_PATTERNS = ("read", "write", "copy", "triad")
MIN_TIME_SHARE = 0.2
"""Share of a time that remains at least after subtracting overhead, so that noise cannot reduce it to zero."""


def allocate_working_set(total_bytes: int, device: str) -> torch.Tensor:
    """FP32 values in memory that is already paged in, so that no time includes page faults."""
    return torch.full((max(3, total_bytes // 4),), 1.0, dtype=torch.float32, device=device)


def stream_benchmark(pattern: str, values: torch.Tensor) -> tuple[BenchFn, int]:
    """One pass over a working set, and the bytes that it reads and writes.

    read: sum of all. write: fill all. copy: one half to the other. triad: a third = a third + 2 * a third.
    """
    if pattern == "read":
        return partial(torch.sum, values, 0, out=values.new_empty(())), values.nbytes
    if pattern == "write":
        return partial(values.fill_, 1.0), values.nbytes
    parts = 2 if pattern == "copy" else 3
    size = values.numel() // parts
    target, *sources = (values[i * size : (i + 1) * size] for i in range(parts))
    if pattern == "copy":
        return partial(target.copy_, sources[0]), parts * size * 4
    return partial(torch.add, *sources, alpha=2.0, out=target), parts * size * 4


def measure_level(
    name: str,
    capacity_bytes: int | None,
    working_set_bytes: int,
    device: str,
    timer: Timer,
    overhead_us: float = 0.0,
) -> MemoryLevel:
    """Measure the bandwidth of a memory level per access pattern; `overhead_us` is subtracted from each call."""
    bandwidths: dict[str, float] = {}
    values = allocate_working_set(working_set_bytes, device)
    for mix in STREAM_PATTERNS:
        call, moved = stream_benchmark(mix, values)
        bandwidths[f"{mix}_gb_s"] = gb_s(moved, subtract_overhead(timer(call), overhead_us))
    return MemoryLevel(name=name, capacity_bytes=capacity_bytes, **bandwidths)


def make_bandwidths_monotonic(levels: tuple[MemoryLevel, ...]) -> tuple[MemoryLevel, ...]:
    """Raise the bandwidth of each cache to at least that of the levels behind it.

    On small caches the startup of a pass dominates its time: L2 of a CPU appeared to read 27 GB/s, L3 100 GB/s.
    """
    names = [f"{mix}_gb_s" for mix in STREAM_PATTERNS]
    best: dict[str, float] = dict.fromkeys(names, 0.0)
    adjusted = []
    for level in reversed(levels):
        known = {name: float(getattr(level, name)) for name in names if getattr(level, name) is not None}
        best |= {name: max(best[name], gb_s) for name, gb_s in known.items()}
        adjusted.append(msgspec.structs.replace(level, **{name: best[name] for name in known}))
    return tuple(reversed(adjusted))


def subtract_overhead(time_us: float, overhead_us: float) -> float:
    """Subtract a known overhead from a time, leaving at least `MIN_TIME_SHARE` of it."""
    return max(time_us - overhead_us, MIN_TIME_SHARE * time_us)


def gb_s(moved_bytes: int, time_us: float) -> float:
    """Bandwidth in GB/s."""
    return moved_bytes / time_us / 1e3


def tflop_s(flops: int, time_us: float) -> float:
    """Arithmetic rate in TFLOP/s."""
    return flops / time_us / 1e6


def matmul_flops(n: int) -> int:
    """FLOPs of a matmul of two (n, n) matrices."""
    return 2 * n**3


def matmul_call(dtype: torch.dtype, n: int, device: str) -> BenchFn:
    """A matmul of two (n, n) matrices of random normal values (int8: uniform) into a preallocated output.

    Raises:
        RuntimeError, NotImplementedError: the build or device does not support it.
    """
    generator = torch.Generator(device).manual_seed(0)  # leaves the caller's random state unchanged
    if dtype is torch.int8:
        a, b = (torch.randint(-128, 128, (n, n), dtype=dtype, device=device, generator=generator) for _ in range(2))
        return partial(torch._int_mm, a, b.t())
    a, b = (torch.randn(n, n, dtype=torch.float32, device=device, generator=generator) for _ in range(2))
    if dtype is torch.float8_e4m3fn:
        one = torch.ones((), dtype=torch.float32, device=device)
        a, b = a.to(dtype), b.to(dtype).t()
        return partial(torch._scaled_mm, a, b, one, one, out_dtype=torch.bfloat16, use_fast_accum=True)
    a, b = a.to(dtype), b.to(dtype)
    return partial(torch.mm, a, b, out=torch.empty_like(a))


@contextmanager
def float32_matmul_precision(precision: str) -> Iterator[None]:
    """Set the FP32 matmul precision to `ieee` or `tf32` inside the block and restore it afterwards."""
    backends = (torch.backends.cuda.matmul, torch.backends.mkldnn.matmul)  # type: ignore[attr-defined]
    before = [backend.fp32_precision for backend in backends]
    try:
        for backend in backends:
            backend.fp32_precision = precision
        yield
    finally:
        for backend, setting in zip(backends, before, strict=True):
            backend.fp32_precision = setting
