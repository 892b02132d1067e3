"""Measure the ceilings of the current CUDA device through torch.

What a device or build does not support is left out with a note; a failed measurement does not affect the others.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import torch

from kernelwright.core.machine import Machine, MemoryLevel
from kernelwright.core.progress import report_stage
from kernelwright.machines import probes
from kernelwright.machines.specs import match_spec
from kernelwright.measure.clock import BenchFn, HostClock, capture_graph, measure_steady_us

MIN_DRAM_SET_BYTES = 2**30
EAGER_CALLS = 300
GRAPH_KERNELS = 1000
L2_PASSES = 50
FMA_CHAIN = 1024
FMA_ELEMENTS = 2**24
"""Sixteen full waves on an H200, so that the last, partial wave matters little."""
MATMULS = (
    ("bfloat16", "bfloat16", 8192, 80),
    ("float16", "float16", 8192, 70),
    ("tfloat32", "float32", 8192, 80),
    ("float32", "float32", 4096, 0),
    ("float64", "float64", 4096, 0),
    ("float8_e4m3fn", "float8_e4m3fn", 8192, 89),
    ("int8", "int8", 8192, 75),
)
"""(name of the rate, dtype of the operands, n, minimum compute capability)."""

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
    """Measure the current CUDA device; takes about five seconds on an H200.

    Raises:
        RuntimeError: DRAM could not be measured.
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
    """Name of the device and the part of it that this process can use (a MIG slice has fewer multiprocessors)."""
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    return {
        "device": "cuda",
        "name": properties.name,
        "multiprocessors": str(properties.multi_processor_count),
        "memory": str(properties.total_memory),
    }


def cuda_software() -> dict[str, str]:
    """CUDA version that torch was built with, and driver version."""
    return {"cuda": str(torch.version.cuda or torch.version.hip), "driver": _driver_version()}


def _driver_version() -> str:
    try:
        import pynvml

        pynvml.nvmlInit()
        version = pynvml.nvmlSystemGetDriverVersion()
        return version.decode() if isinstance(version, bytes) else str(version)
    except Exception:  # NVML missing or failing: the version only distinguishes measurements
        return "unknown"


def measure_best_us(call: BenchFn) -> float:
    """Minimum device time of one call: a ceiling is what the device can reach, not its average."""
    return measure_steady_us(call, "cuda", budget_s=0.08, best=True)


def measure_in_graph_us(call: BenchFn, passes: int, timer: Callable[[BenchFn], float] = measure_best_us) -> float:
    """Microseconds per call of `passes` calls replayed by a CUDA graph."""
    return timer(capture_graph(call, passes).replay) / passes


def dram_working_set_bytes(l2_bytes: int, free_bytes: int) -> int:
    """At least 1 GiB and four times L2, but at most a quarter of the free memory."""
    return min(max(4 * l2_bytes, MIN_DRAM_SET_BYTES), free_bytes // 4)


def l2_working_set_bytes(l2_bytes: int) -> int:
    """A third of L2, which leaves space for a split L2 and its hashing."""
    return l2_bytes // 3


def measure_launch_costs_us(notes: list[str]) -> tuple[float | None, float | None, float | None]:
    """(host time of one eager operator, time per eager kernel, time per kernel in a graph)."""
    one = torch.ones(1, dtype=torch.float32, device="cuda")
    tiny = partial(torch.add, one, one, out=one)
    dispatch_us = _measure_or_note("dispatch cost", partial(_measure_host_us, tiny), notes)
    launch_us = _measure_or_note(
        "launch cost", partial(measure_steady_us, tiny, "cuda", budget_s=0.08, min_sample_us=1500.0), notes
    )
    graph_us = _measure_or_note("launch cost in a graph", partial(measure_in_graph_us, tiny, GRAPH_KERNELS), notes)
    return dispatch_us, launch_us, graph_us


def _measure_host_us(call: BenchFn) -> float:
    """Median host time to issue a call; the batch is small enough that the launch queue never fills."""
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
        notes.append(f"L2: {size >> 20} MiB in a graph, {graph_us:.2f} us of launch subtracted per pass")
    report_stage("the bandwidth of HBM")
    memory, size = measure_dram(l2_bytes)
    notes.append(f"main memory: {size >> 20} MiB; copy counts the bytes read and written")
    return probes.make_bandwidths_monotonic((*levels, memory))


def measure_dram(last_cache_bytes: int) -> tuple[MemoryLevel, int]:
    """Current DRAM bandwidth of the current device, and the bytes of the working set used to measure it."""
    free_bytes, total_bytes = torch.cuda.mem_get_info()
    size = dram_working_set_bytes(last_cache_bytes, free_bytes)
    return probes.measure_level("DRAM", total_bytes, size, "cuda", measure_best_us), size


def measure_matmul_rates(device: str, capability: int, timer: probes.Timer, notes: list[str]) -> dict[str, float]:
    """TFLOP/s of a large square matmul per dtype on random values; tensor cores at 8192, FP32 and FP64 at 4096."""
    rates: dict[str, float] = {}
    for name, operands, n, min_capability in MATMULS:
        if capability < min_capability:
            notes.append(f"no {name} matmul: it needs compute capability {min_capability / 10:.1f}")
            continue
        report_stage(f"the rate of a {name} matmul")
        rate = _measure_or_note(f"{name} matmul", partial(measure_matmul_rate, name, operands, n, device, timer), notes)
        if rate is not None:
            rates[name] = rate
    return rates


def measure_matmul_rate(name: str, operand_dtype: str, n: int, device: str, timer: probes.Timer) -> float:
    """TFLOP/s of a matmul of two (n, n) matrices; `name` "tfloat32" enables TF32."""
    with probes.float32_matmul_precision("tf32" if name == "tfloat32" else "ieee"):
        time_us = timer(probes.matmul_call(getattr(torch, operand_dtype), n, device))
    return probes.tflop_s(probes.matmul_flops(n), time_us)


def _measure_vector_rates(matrix: dict[str, float], notes: list[str]) -> dict[str, float]:
    """Rate of vector FLOPs from FMA chains in registers; where these do not compile, the rate of a strict matmul."""
    report_stage("the rate of vector arithmetic")
    rates: dict[str, float] = {}
    float32_rate = _measure_or_note("vector/float32", partial(_measure_fma_rate, torch.float32), notes)
    if float32_rate is not None or "float32" in matrix:
        rates["float32"] = max(float32_rate or 0.0, matrix.get("float32", 0.0))
        notes.append("vector/float32: " + ("FMA chains in registers" if float32_rate else "a strict matmul"))
    float64_rate = _measure_or_note("vector/float64", partial(_measure_fma_rate, torch.float64), notes)
    if float64_rate is not None:
        rates["float64"] = float64_rate
    return rates


def _measure_fma_rate(dtype: torch.dtype) -> float:
    """TFLOP/s of a pointwise kernel of FMAs only; compiled by torch's NVRTC."""
    from torch.cuda.jiterator import _create_jit_fn

    chain = _create_jit_fn(_FMA_SOURCE.replace("CHAIN", str(FMA_CHAIN)))
    values = torch.full((FMA_ELEMENTS,), 0.5, dtype=dtype, device="cuda")
    return probes.tflop_s(2 * FMA_CHAIN * FMA_ELEMENTS, measure_best_us(partial(chain, values)))


def _measure_or_note(what: str, measure: Callable[[], T], notes: list[str]) -> T | None:
    """The result of a measurement, or None and a note if it fails."""
    try:
        return measure()
    except (RuntimeError, NotImplementedError, AttributeError, TypeError, ValueError, ImportError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        notes.append(f"{what} could not be measured: {reason[:100]}")
        return None
