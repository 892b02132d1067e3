"""Cost of memory access patterns from hardware counters, compared with `bank_conflicts` and `coalescing`."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from kernelwright.core.layout import AccessOutcome
from kernelwright.hwcheck.ptx_probes import access_source
from kernelwright.layouts import ComposedLayout, Layout, Swizzle, bank_conflicts, coalescing
from kernelwright.layouts.access import VectorAccesses
from kernelwright.measure.counters import collect_metrics
from kernelwright.toolchain.cuda.launcher import CudaKernel

METRICS = {
    "shared": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
    "global": "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
}
SHARED_PATTERNS: tuple[tuple[Layout | ComposedLayout, int], ...] = (
    (Layout(32), 4),
    (Layout(32, 0), 4),
    (Layout(32, 2), 4),
    (Layout(32, 3), 4),
    (Layout(32, 32), 4),
    (Layout(32, 33), 4),
    (Layout(32, 64), 2),
    (Layout(32), 2),
    (Layout(32), 1),
    (Layout(32, 8), 1),
    (Layout((32, 2), (2, 1)), 4),
    (Layout((32, 2), (16, 1)), 4),
    (Layout(((16, 2), 2), ((2, 0), 1)), 4),
    (Layout(((2, 16), 2), ((0, 2), 1)), 4),
    (Layout(((2, 2, 8), 2), ((2, 0, 4), 1)), 4),
    (Layout(((4, 8), 2), ((0, 2), 1)), 4),
    (Layout(((2, 16), 2), ((0, 32), 1)), 4),
    (Layout((32, 2), (0, 1)), 4),
    (Layout((32, 4), (4, 1)), 4),
    (Layout((32, 4), (32, 1)), 4),
    (Layout(((8, 4), 4), ((4, 0), 1)), 4),
    (Layout(((2, 16), 4), ((0, 4), 1)), 4),
    (Layout(((2, 2, 8), 4), ((4, 0, 8), 1)), 4),
    (Layout(((4, 8), 4), ((0, 4), 1)), 4),
    (Layout((32, 4), (0, 1)), 4),
    (Layout(((8, 4), 8), ((64, 8), 1)), 2),
    (ComposedLayout(Swizzle(3, 3, 3), 0, Layout(((8, 4), 8), ((64, 8), 1))), 2),
    (ComposedLayout(Swizzle(2, 3, 3), 0, Layout(((8, 4), 8), ((64, 8), 1))), 2),
    (ComposedLayout(Swizzle(5, 0, 5), 0, Layout(32, 32)), 4),
)
GLOBAL_PATTERNS: tuple[tuple[Layout, int], ...] = (
    (Layout(32), 4),
    (Layout(32, 2), 4),
    (Layout(32, 8), 4),
    (Layout(32, 32), 4),
    (Layout(32, 0), 4),
    (Layout(32), 1),
    (Layout((32, 4), (4, 1)), 4),
    (Layout((32, 4), (64, 1)), 4),
    (Layout(((4, 8), 2), ((2, 64), 1)), 2),
    (Layout(((8, 4), 8), ((64, 8), 1)), 2),
)


def measure_accesses() -> Iterator[AccessOutcome]:
    """Predict and measure every pattern; the kernels run in a subprocess under ncu."""
    command = [sys.executable, "-c", f"from {__name__} import run; run()"]
    measurements = collect_metrics(command, list(METRICS.values()), "probe")
    for (memory, layout, element_bytes, predicted), counters in zip(predict_accesses(), measurements, strict=True):
        accesses = VectorAccesses.from_layout(layout, element_bytes, None)
        yield AccessOutcome(
            memory=memory,
            layout=f"{layout} x {element_bytes} B",
            access_bytes=accesses.access_bytes,
            predicted=predicted,
            measured=round(counters[METRICS[memory]]),
        )


def predict_accesses() -> Iterator[tuple[str, Layout | ComposedLayout, int, int]]:
    """Memory, layout, element size in bytes, and predicted wavefronts (shared) or sectors (global) of each pattern."""
    for memory, layout, element_bytes in _patterns():
        wavefronts = bank_conflicts(layout, element_bytes).wavefronts if memory == "shared" else 0
        yield memory, layout, element_bytes, wavefronts or coalescing(layout, element_bytes).sectors


def run() -> None:
    """Launch every pattern once, in order."""
    import torch

    data = torch.zeros(2**16, dtype=torch.int32, device="cuda")
    out = torch.zeros(32, dtype=torch.int32, device="cuda")
    for memory, layout, element_bytes in _patterns():
        CudaKernel(pattern_source(memory, layout, element_bytes), "probe")(1, 32, [data, out])
    torch.cuda.synchronize()


def pattern_source(memory: str, layout: Layout | ComposedLayout, element_bytes: int) -> str:
    """CUDA source of the kernel for one pattern."""
    accesses = VectorAccesses.from_layout(layout, element_bytes, None)
    addresses = [row for _, row in accesses.addresses()]
    return access_source(addresses, accesses.access_bytes, memory, max(map(max, addresses)) + accesses.access_bytes)


def _patterns() -> list[tuple[str, Layout | ComposedLayout, int]]:
    return [("shared", *one) for one in SHARED_PATTERNS] + [("global", *one) for one in GLOBAL_PATTERNS]
