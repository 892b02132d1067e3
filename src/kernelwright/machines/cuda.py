"""The ceilings of the current CUDA device, measured through torch.

What a device or a build cannot do is left out with a note; no failure of one figure costs another.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import torch

from kernelwright.core.progress import stage
from kernelwright.core.records import Machine, MemoryLevel
from kernelwright.machines import probes
from kernelwright.machines.specs import spec_of
from kernelwright.measure.clock import Call, HostClock, capture, steady_us

LEAST_HBM_BYTES = 2**30
EAGER_CALLS = 300
GRAPH_KERNELS = 1000
L2_PASSES = 50
FMA_CHAIN = 1024
FMA_ELEMENTS = 2**24
"""Sixteen waves of full multiprocessors on an H200, so that the last one weighs little."""
PRODUCTS = (
    ("bfloat16", "bfloat16", 8192, 80),
    ("float16", "float16", 8192, 70),
    ("tfloat32", "float32", 8192, 80),
    ("float32", "float32", 4096, 0),
    ("float64", "float64", 4096, 0),
    ("float8_e4m3fn", "float8_e4m3fn", 8192, 89),
    ("int8", "int8", 8192, 75),
)
"""(name of the rate, dtype of the operands, n, least compute capability)."""

_FMA_SOURCE = """
template <typename T> T fma_chain(T x) {
    const T a = T(0.999), b = T(0.001);
    #pragma unroll 64
    for (int i = 0; i < CHAIN; ++i) { x = x * a + b; }
    return x;
}
"""
T = TypeVar("T")


def measure_cuda() -> Machine:
    """Measures the current CUDA device; about five seconds on an H200.

    Raises:
        RuntimeError: main memory itself could not be measured.
    """
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    capability = properties.major * 10 + properties.minor
    notes: list[str] = []
    try:
        stage("the cost of a launch")
        dispatch_us, launch_us, graph_us = launch_costs(notes)
        levels = _levels(properties, graph_us or 0.0, notes)
        matrix = matrix_rates("cuda", capability, steady_best, notes)
        vector = _vector_rates(matrix, notes)
    finally:
        torch.cuda.empty_cache()
    return Machine(
        name=properties.name,
        device="cuda",
        provenance="measured",
        levels=levels,
        matrix_tflop_s=matrix,
        vector_tflop_s=vector,
        multiprocessors=properties.multi_processor_count,
        dispatch_us=dispatch_us,
        launch_us=launch_us,
        graph_launch_us=graph_us,
        spec=spec_of(properties.name, properties.multi_processor_count),
        notes=tuple(notes),
    )


def cuda_identity() -> dict[str, str]:
    """Which device it is and how much of it this process has (a MIG slice has fewer multiprocessors)."""
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    return {
        "device": "cuda",
        "name": properties.name,
        "multiprocessors": str(properties.multi_processor_count),
        "memory": str(properties.total_memory),
    }


def cuda_software() -> dict[str, str]:
    """Versions of the CUDA side: what torch was built with, and the driver."""
    return {"cuda": str(torch.version.cuda or torch.version.hip), "driver": _driver_version()}


def _driver_version() -> str:
    try:
        import pynvml

        pynvml.nvmlInit()
        version = pynvml.nvmlSystemGetDriverVersion()
        return version.decode() if isinstance(version, bytes) else str(version)
    except Exception:  # NVML missing or unwilling: the version only keeps measurements apart
        return "unknown"


def steady_best(call: Call) -> float:
    """Device microseconds of one call at its best: a ceiling is what the device can do, not what it does on average."""
    return steady_us(call, "cuda", budget_s=0.08, best=True)


def in_graph(call: Call, passes: int, replayed_us: Callable[[Call], float] = steady_best) -> float:
    """Microseconds of one of `passes` calls that a CUDA graph replays."""
    return replayed_us(capture(call, passes).replay) / passes


def hbm_working_set(l2_bytes: int, free_bytes: int) -> int:
    """A GiB and four times L2 at least, but no more than a quarter of the memory that is free."""
    return min(max(4 * l2_bytes, LEAST_HBM_BYTES), free_bytes // 4)


def l2_working_set(l2_bytes: int) -> int:
    """A third of L2, so that the halves of a split L2 and its hashing leave room."""
    return l2_bytes // 3


def launch_costs(notes: list[str]) -> tuple[float | None, float | None, float | None]:
    """(host time of one eager operator, time from one eager kernel to the next, and the same inside a graph)."""
    one = torch.ones(1, dtype=torch.float32, device="cuda")
    tiny = partial(torch.add, one, one, out=one)
    dispatch_us = _attempt("dispatch cost", partial(_host_cost_us, tiny), notes)
    launch_us = _attempt("launch cost", partial(steady_us, tiny, "cuda", budget_s=0.08, least_us=1500.0), notes)
    graph_us = _attempt("launch cost in a graph", partial(in_graph, tiny, GRAPH_KERNELS), notes)
    return dispatch_us, launch_us, graph_us


def _host_cost_us(call: Call) -> float:
    """Median host time of issuing a call; few enough in a row that the launch queue never fills."""
    clock, samples = HostClock(), []
    for _ in range(7):
        torch.cuda.synchronize()
        samples.append(clock.time_us(call, EAGER_CALLS))
    torch.cuda.synchronize()
    return sorted(samples)[len(samples) // 2]


def _levels(properties: object, graph_us: float, notes: list[str]) -> tuple[MemoryLevel, ...]:
    l2_bytes = int(getattr(properties, "L2_cache_size", 0) or 0)
    levels: list[MemoryLevel] = []
    if l2_bytes:
        stage("the bandwidth of L2")
        passes = partial(in_graph, passes=L2_PASSES)
        size = l2_working_set(l2_bytes)
        measured = _attempt("L2", lambda: probes.level("L2", l2_bytes, size, "cuda", passes, graph_us), notes)
        levels.append(measured or MemoryLevel(name="L2", capacity_bytes=l2_bytes))
        notes.append(f"L2: {size >> 20} MiB in a graph, {graph_us:.2f} us of launch taken off each pass")
    stage("the bandwidth of HBM")
    memory, size = main_memory(l2_bytes)
    notes.append(f"main memory: {size >> 20} MiB; copy counts what is read and what is written")
    return probes.no_slower_than_farther((*levels, memory))


def main_memory(last_cache_bytes: int) -> tuple[MemoryLevel, int]:
    """Main memory of the current device as it is now, and the bytes of the working set that it was measured with."""
    free_bytes, total_bytes = torch.cuda.mem_get_info()
    size = hbm_working_set(last_cache_bytes, free_bytes)
    return probes.level("DRAM", total_bytes, size, "cuda", steady_best), size


def matrix_rates(device: str, capability: int, stopwatch: probes.Stopwatch, notes: list[str]) -> dict[str, float]:
    """TFLOP/s of a large square product per dtype on random values; tensor cores at 8192, FP32 and FP64 at 4096."""
    found: dict[str, float] = {}
    for name, operands, n, least_capability in PRODUCTS:
        if capability < least_capability:
            notes.append(f"no {name} product: it needs compute capability {least_capability / 10:.1f}")
            continue
        stage(f"the rate of a {name} product")
        rate = _attempt(f"{name} product", partial(product_rate, name, operands, n, device, stopwatch), notes)
        if rate is not None:
            found[name] = rate
    return found


def product_rate(name: str, operands: str, n: int, device: str, stopwatch: probes.Stopwatch) -> float:
    with probes.float32_products("tf32" if name == "tfloat32" else "ieee"):
        time_us = stopwatch(probes.product(getattr(torch, operands), n, device))
    return probes.tflop_s(probes.product_flops(n), time_us)


def _vector_rates(matrix: dict[str, float], notes: list[str]) -> dict[str, float]:
    """FLOP/s outside of products: chains of FMAs in registers; where they do not compile, a strict product's rate."""
    stage("the rate of vector arithmetic")
    found: dict[str, float] = {}
    chained = _attempt("vector/float32", partial(_fma_rate, torch.float32), notes)
    if chained is not None or "float32" in matrix:
        found["float32"] = max(chained or 0.0, matrix.get("float32", 0.0))
        notes.append("vector/float32: chains of FMAs in registers" if chained else "vector/float32: a strict product")
    doubled = _attempt("vector/float64", partial(_fma_rate, torch.float64), notes)
    if doubled is not None:
        found["float64"] = doubled
    return found


def _fma_rate(dtype: torch.dtype) -> float:
    """TFLOP/s of a pointwise kernel that does nothing but FMAs; compiled by the NVRTC that torch brings."""
    from torch.cuda.jiterator import _create_jit_fn

    chain = _create_jit_fn(_FMA_SOURCE.replace("CHAIN", str(FMA_CHAIN)))
    values = torch.full((FMA_ELEMENTS,), 0.5, dtype=dtype, device="cuda")
    return probes.tflop_s(2 * FMA_CHAIN * FMA_ELEMENTS, steady_best(partial(chain, values)))


def _attempt(what: str, deed: Callable[[], T], notes: list[str]) -> T | None:
    """The result of a measurement, or None and a note."""
    try:
        return deed()
    except (RuntimeError, NotImplementedError, AttributeError, TypeError, ValueError, ImportError) as fault:
        first = (str(fault).splitlines() or [type(fault).__name__])[0]
        notes.append(f"{what} could not be measured: {first[:100]}")
        return None
