"""The ceilings of the current CUDA device, measured through torch.

What a device or a build cannot do is left out with a note; no failure of one figure costs another.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import torch

from kernelwright.core.progress import report_stage
from kernelwright.core.records import Machine, MemoryLevel
from kernelwright.machines import probes
from kernelwright.machines.specs import match_spec
from kernelwright.measure.clock import BenchFn, HostClock, capture_graph, measure_steady_us

MIN_DRAM_SET_BYTES = 2**30
EAGER_CALLS = 300
GRAPH_KERNELS = 1000
L2_PASSES = 50
FMA_CHAIN = 1024
FMA_ELEMENTS = 2**24
"""Sixteen waves of full multiprocessors on an H200, so that the last one weighs little."""
MATMULS = (
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
        report_stage("the cost of a launch")
        dispatch_us, launch_us, graph_us = measure_launch_costs_us(notes)
        levels = _measure_levels(properties, graph_us or 0.0, notes)
        matrix = measure_matmul_rates("cuda", capability, measure_best_us, notes)
        vector = _measure_vector_rates(matrix, notes)
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
        spec=match_spec(properties.name, properties.multi_processor_count),
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


def measure_best_us(call: BenchFn) -> float:
    """Device microseconds of one call at its best: a ceiling is what the device can do, not what it does on average."""
    return measure_steady_us(call, "cuda", budget_s=0.08, best=True)


def measure_in_graph_us(call: BenchFn, passes: int, timer: Callable[[BenchFn], float] = measure_best_us) -> float:
    """Microseconds of one of `passes` calls that a CUDA graph replays."""
    return timer(capture_graph(call, passes).replay) / passes


def dram_working_set_bytes(l2_bytes: int, free_bytes: int) -> int:
    """A GiB and four times L2 at least, but no more than a quarter of the memory that is free."""
    return min(max(4 * l2_bytes, MIN_DRAM_SET_BYTES), free_bytes // 4)


def l2_working_set_bytes(l2_bytes: int) -> int:
    """A third of L2, so that the halves of a split L2 and its hashing leave room."""
    return l2_bytes // 3


def measure_launch_costs_us(notes: list[str]) -> tuple[float | None, float | None, float | None]:
    """(host time of one eager operator, time from one eager kernel to the next, and the same inside a graph)."""
    one = torch.ones(1, dtype=torch.float32, device="cuda")
    tiny = partial(torch.add, one, one, out=one)
    dispatch_us = _measure_or_note("dispatch cost", partial(_measure_host_us, tiny), notes)
    launch_us = _measure_or_note(
        "launch cost", partial(measure_steady_us, tiny, "cuda", budget_s=0.08, min_sample_us=1500.0), notes
    )
    graph_us = _measure_or_note("launch cost in a graph", partial(measure_in_graph_us, tiny, GRAPH_KERNELS), notes)
    return dispatch_us, launch_us, graph_us


def _measure_host_us(call: BenchFn) -> float:
    """Median host time of issuing a call; few enough in a row that the launch queue never fills."""
    clock, samples = HostClock(), []
    for _ in range(7):
        torch.cuda.synchronize()
        samples.append(clock.time_us(call, EAGER_CALLS))
    torch.cuda.synchronize()
    return sorted(samples)[len(samples) // 2]


def _measure_levels(properties: object, graph_us: float, notes: list[str]) -> tuple[MemoryLevel, ...]:
    l2_bytes = int(getattr(properties, "L2_cache_size", 0) or 0)
    levels: list[MemoryLevel] = []
    if l2_bytes:
        report_stage("the bandwidth of L2")
        passes = partial(measure_in_graph_us, passes=L2_PASSES)
        size = l2_working_set_bytes(l2_bytes)
        measured = _measure_or_note(
            "L2", lambda: probes.measure_level("L2", l2_bytes, size, "cuda", passes, graph_us), notes
        )
        levels.append(measured or MemoryLevel(name="L2", capacity_bytes=l2_bytes))
        notes.append(f"L2: {size >> 20} MiB in a graph, {graph_us:.2f} us of launch taken off each pass")
    report_stage("the bandwidth of HBM")
    memory, size = measure_dram(l2_bytes)
    notes.append(f"main memory: {size >> 20} MiB; copy counts what is read and what is written")
    return probes.make_bandwidths_monotonic((*levels, memory))


def measure_dram(last_cache_bytes: int) -> tuple[MemoryLevel, int]:
    """Main memory of the current device as it is now, and the bytes of the working set that it was measured with."""
    free_bytes, total_bytes = torch.cuda.mem_get_info()
    size = dram_working_set_bytes(last_cache_bytes, free_bytes)
    return probes.measure_level("DRAM", total_bytes, size, "cuda", measure_best_us), size


def measure_matmul_rates(device: str, capability: int, timer: probes.Timer, notes: list[str]) -> dict[str, float]:
    """TFLOP/s of a large square product per dtype on random values; tensor cores at 8192, FP32 and FP64 at 4096."""
    found: dict[str, float] = {}
    for name, operands, n, least_capability in MATMULS:
        if capability < least_capability:
            notes.append(f"no {name} product: it needs compute capability {least_capability / 10:.1f}")
            continue
        report_stage(f"the rate of a {name} product")
        rate = _measure_or_note(
            f"{name} product", partial(measure_matmul_rate, name, operands, n, device, timer), notes
        )
        if rate is not None:
            found[name] = rate
    return found


def measure_matmul_rate(name: str, operand_dtype: str, n: int, device: str, timer: probes.Timer) -> float:
    with probes.float32_matmul_precision("tf32" if name == "tfloat32" else "ieee"):
        time_us = timer(probes.matmul_call(getattr(torch, operand_dtype), n, device))
    return probes.tflop_s(probes.matmul_flops(n), time_us)


def _measure_vector_rates(matrix: dict[str, float], notes: list[str]) -> dict[str, float]:
    """FLOP/s outside of products: chains of FMAs in registers; where they do not compile, a strict product's rate."""
    report_stage("the rate of vector arithmetic")
    found: dict[str, float] = {}
    chained = _measure_or_note("vector/float32", partial(_measure_fma_rate, torch.float32), notes)
    if chained is not None or "float32" in matrix:
        found["float32"] = max(chained or 0.0, matrix.get("float32", 0.0))
        notes.append("vector/float32: chains of FMAs in registers" if chained else "vector/float32: a strict product")
    doubled = _measure_or_note("vector/float64", partial(_measure_fma_rate, torch.float64), notes)
    if doubled is not None:
        found["float64"] = doubled
    return found


def _measure_fma_rate(dtype: torch.dtype) -> float:
    """TFLOP/s of a pointwise kernel that does nothing but FMAs; compiled by the NVRTC that torch brings."""
    from torch.cuda.jiterator import _create_jit_fn

    chain = _create_jit_fn(_FMA_SOURCE.replace("CHAIN", str(FMA_CHAIN)))
    values = torch.full((FMA_ELEMENTS,), 0.5, dtype=dtype, device="cuda")
    return probes.tflop_s(2 * FMA_CHAIN * FMA_ELEMENTS, measure_best_us(partial(chain, values)))


def _measure_or_note(what: str, measure: Callable[[], T], notes: list[str]) -> T | None:
    """The result of a measurement, or None and a note."""
    try:
        return measure()
    except (RuntimeError, NotImplementedError, AttributeError, TypeError, ValueError, ImportError) as fault:
        first = (str(fault).splitlines() or [type(fault).__name__])[0]
        notes.append(f"{what} could not be measured: {first[:100]}")
        return None
