"""What is run to find a ceiling, and the arithmetic from its time to a rate. The same for CPU and CUDA.

A `Timer` gives the microseconds of one call; whoever measures hands one in, so the arithmetic can be tested with
a clock that is made up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import msgspec
import torch

from kernelwright.core.records import MemoryLevel
from kernelwright.measure.clock import BenchFn

Timer = Callable[[BenchFn], float]
STREAM_PATTERNS = ("read", "write", "copy", "triad")
MIN_TIME_SHARE = 0.2
"""At most this much of a time is left when a known overhead is taken off, so that noise cannot make it nothing."""


def allocate_working_set(total_bytes: int, device: str) -> torch.Tensor:
    """FP32 values in memory that has been touched, so that no page fault is in a time."""
    return torch.full((max(3, total_bytes // 4),), 1.0, dtype=torch.float32, device=device)


def stream_benchmark(pattern: str, values: torch.Tensor) -> tuple[BenchFn, int]:
    """One pass over a working set, and the bytes that it reads and writes by name.

    read: sum of all of it. write: fill all of it. copy: one half to the other. triad: a third = a third + 2 * a third.
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
    """A level of memory with its bandwidth per mix, `overhead_us` of each call taken off."""
    figures: dict[str, float] = {}
    values = allocate_working_set(working_set_bytes, device)
    for mix in STREAM_PATTERNS:
        call, moved = stream_benchmark(mix, values)
        figures[f"{mix}_gb_s"] = gb_s(moved, subtract_overhead(timer(call), overhead_us))
    return MemoryLevel(name=name, capacity_bytes=capacity_bytes, **figures)


def make_bandwidths_monotonic(levels: tuple[MemoryLevel, ...]) -> tuple[MemoryLevel, ...]:
    """A near cache gives at least what the farther levels give: where a pass is so short that starting it is most of
    its time, the figure of the next level stands in (a CPU's L2 read 27 GB/s beside 100 GB/s of L3)."""
    names = [f"{mix}_gb_s" for mix in STREAM_PATTERNS]
    best: dict[str, float] = dict.fromkeys(names, 0.0)
    raised = []
    for level in reversed(levels):
        known = {name: float(getattr(level, name)) for name in names if getattr(level, name) is not None}
        best |= {name: max(best[name], gb_s) for name, gb_s in known.items()}
        raised.append(msgspec.structs.replace(level, **{name: best[name] for name in known}))
    return tuple(reversed(raised))


def subtract_overhead(time_us: float, overhead_us: float) -> float:
    """A time without a known overhead."""
    return max(time_us - overhead_us, MIN_TIME_SHARE * time_us)


def gb_s(moved_bytes: int, time_us: float) -> float:
    return moved_bytes / time_us / 1e3


def tflop_s(flops: int, time_us: float) -> float:
    return flops / time_us / 1e6


def matmul_flops(n: int) -> int:
    """FLOPs of the product of two (n, n) matrices."""
    return 2 * n**3


def matmul_call(dtype: torch.dtype, n: int, device: str) -> BenchFn:
    """The product of two (n, n) matrices of random normal values (int8: uniform), written to the same place each time.

    Raises:
        RuntimeError, NotImplementedError: this build or device has no such product.
    """
    random = torch.Generator(device).manual_seed(0)  # a generator of its own: the caller's random state stays
    if dtype is torch.int8:
        a, b = (torch.randint(-128, 128, (n, n), dtype=dtype, device=device, generator=random) for _ in range(2))
        return partial(torch._int_mm, a, b.t())
    a, b = (torch.randn(n, n, dtype=torch.float32, device=device, generator=random) for _ in range(2))
    if dtype is torch.float8_e4m3fn:
        one = torch.ones((), dtype=torch.float32, device=device)
        a, b = a.to(dtype), b.to(dtype).t()
        return partial(torch._scaled_mm, a, b, one, one, out_dtype=torch.bfloat16, use_fast_accum=True)
    a, b = a.to(dtype), b.to(dtype)
    return partial(torch.mm, a, b, out=torch.empty_like(a))


@contextmanager
def float32_matmul_precision(precision: str) -> Iterator[None]:
    """FP32 products at `ieee` or `tf32` inside, whatever was set before afterwards."""
    backends = (torch.backends.cuda.matmul, torch.backends.mkldnn.matmul)  # type: ignore[attr-defined]
    before = [backend.fp32_precision for backend in backends]
    try:
        for backend in backends:
            backend.fp32_precision = precision
        yield
    finally:
        for backend, setting in zip(backends, before, strict=True):
            backend.fp32_precision = setting
