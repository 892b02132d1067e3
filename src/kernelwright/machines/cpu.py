"""Measure the ceilings of this CPU through torch: multithreaded, vectorised, bandwidths without page faults."""

from __future__ import annotations

import platform
import sys
from functools import partial
from pathlib import Path

import torch

from kernelwright.core.machine import Machine, MemoryLevel
from kernelwright.core.progress import report_stage
from kernelwright.machines import probes
from kernelwright.machines.caches import CpuCache, cpu_caches, sysctl_text
from kernelwright.machines.store import DISTURBED
from kernelwright.measure.clock import measure_steady_us, wall_s
from kernelwright.measure.conditions import SystemCounters

MIN_DRAM_SET_BYTES = 256 * 2**20
MAX_CACHE_SET_BYTES = 64 * 2**20
FAULT_TEST_BYTES = 64 * 2**20
MATMUL_SIZES = (128, 256, 512, 1024, 2048)
MATMUL_TIME_LIMIT_US = 16_000.0
L1_CALL_BYTES = 2**24
Caches = tuple[CpuCache, ...]
EXP_FLOPS, EXP_ELEMENTS = 8, 2**20
MATMUL_DTYPES = ("float32", "bfloat16", "float64", "float16", "int8")


def measure_cpu() -> Machine:
    """Measure this CPU with torch's current number of threads; takes about five seconds."""
    threads = torch.get_num_threads()
    caches = cpu_caches(threads)
    notes: list[str] = []
    before, start_s = SystemCounters.now(), wall_s()
    report_stage("the cost of one operator and of newly allocated memory")
    dispatch_us = measure_dispatch_us()
    fault_us = measure_fault_us_per_mib()
    levels = _measure_levels(caches, threads, dispatch_us, notes)
    matrix = _measure_matmul_rates(notes)
    vector = _measure_vector_rates(caches, dispatch_us, matrix, notes)
    special = _measure_special_rates()
    if SystemCounters.now().since(before).shows_interference(wall_s() - start_s, threads):
        notes.append(DISTURBED)
    return Machine(
        name=cpu_name(),
        device="cpu",
        provenance="measured",
        levels=levels,
        matrix_tflop_s=matrix,
        vector_tflop_s=vector,
        special_tflop_s=special,
        threads=threads,
        dispatch_us=dispatch_us,
        page_fault_us_per_mib=fault_us,
        notes=tuple(notes),
    )


def cpu_identity() -> dict[str, str]:
    """Name of the CPU and torch's number of threads."""
    return {"device": "cpu", "name": cpu_name(), "threads": str(torch.get_num_threads())}


def cpu_name() -> str:
    """Model name of the processor."""
    if sys.platform == "darwin":
        return sysctl_text("machdep.cpu.brand_string") or platform.machine()
    info = Path("/proc/cpuinfo")
    for line in info.read_text().splitlines() if info.exists() else ():
        field, _, value = line.partition(":")
        if field.strip() in ("model name", "Model") and value.strip():
            return value.strip()
    return platform.processor() or platform.machine()


def measure_dispatch_us() -> float:
    """Host time of one eager operator on one element."""
    one = torch.ones(1, dtype=torch.float32, device="cpu")
    return measure_steady_us(partial(torch.add, one, one, out=one), "cpu", budget_s=0.1)


def measure_fault_us_per_mib() -> float:
    """Extra cost of newly allocated memory over memory in use, per MiB, under this process's allocation policy."""
    values = torch.full((FAULT_TEST_BYTES // 4,), 1.0, dtype=torch.float32, device="cpu")
    reused_us = measure_steady_us(partial(torch.add, values, 1.0, out=torch.zeros_like(values)), "cpu", budget_s=0.15)
    new_us = measure_steady_us(partial(torch.add, values, 1.0), "cpu", budget_s=0.3)
    return max(0.0, new_us - reused_us) / (FAULT_TEST_BYTES / 2**20)


def dram_working_set_bytes(last_cache_bytes: int, available_bytes: int) -> int:
    """Four times the last-level cache and at least 256 MiB, but at most a quarter of the available memory."""
    return min(max(4 * last_cache_bytes, MIN_DRAM_SET_BYTES), available_bytes // 4)


def cache_working_set_bytes(cache: CpuCache) -> int:
    """Half of a private cache; a quarter of a shared one, which other processes may be using too."""
    share = 2 if cache.name in ("L1", "L2") else 4
    return min(cache.capacity_bytes // share, MAX_CACHE_SET_BYTES)


def measure_dram(last_cache_bytes: int, budget_s: float = 0.3) -> tuple[MemoryLevel, int]:
    """Current DRAM bandwidth, and the bytes of the working set used to measure it."""
    import psutil

    memory = psutil.virtual_memory()
    size = dram_working_set_bytes(last_cache_bytes, memory.available)
    best = partial(measure_steady_us, device="cpu", budget_s=budget_s, best=True)
    return probes.measure_level("DRAM", memory.total, size, "cpu", best), size


def _measure_levels(caches: Caches, threads: int, dispatch_us: float, notes: list[str]) -> tuple[MemoryLevel, ...]:
    levels = []
    for cache in caches:
        report_stage(f"the bandwidth of {cache.name}")
        if cache.name == "L1":
            levels.append(_measure_l1(cache, threads, dispatch_us))
        else:
            best = partial(measure_steady_us, device="cpu", budget_s=0.15, best=True)
            size = cache_working_set_bytes(cache)
            levels.append(probes.measure_level(cache.name, cache.capacity_bytes, size, "cpu", best, dispatch_us))
    report_stage("the bandwidth of main memory")
    memory, size = measure_dram(max((cache.capacity_bytes for cache in caches), default=0))
    notes += _memory_notes(caches, size, dispatch_us)
    return probes.make_bandwidths_monotonic((*levels, memory))


def _measure_l1(cache: CpuCache, threads: int, dispatch_us: float) -> MemoryLevel:
    """Read bandwidth from one operator that sums the same short row repeatedly; a single pass would be all dispatch."""
    row = torch.ones(cache.instance_bytes // 8, dtype=torch.float32, device="cpu")
    rows = max(64 * threads, L1_CALL_BYTES // row.nbytes)
    sums = torch.empty(rows, dtype=torch.float32, device="cpu")
    call = partial(torch.sum, row.expand(rows, -1), 1, out=sums)
    time_us = probes.subtract_overhead(measure_steady_us(call, "cpu", budget_s=0.15, best=True), dispatch_us)
    return MemoryLevel(
        name=cache.name, capacity_bytes=cache.capacity_bytes, read_gb_s=probes.gb_s(rows * row.nbytes, time_us)
    )


def _memory_notes(caches: Caches, dram_set_bytes: int, dispatch_us: float) -> list[str]:
    notes = [f"main memory: {dram_set_bytes >> 20} MiB, already paged in; copy counts the bytes read and written"]
    if not caches:
        return [*notes, "the system does not report its cache sizes"]
    notes.append(f"caches: {dispatch_us:.2f} us of dispatch subtracted per call; L1 is read only, one row summed again")
    if dram_set_bytes < 4 * max(cache.capacity_bytes for cache in caches):
        notes.append("less than four times the last-level cache is free: main memory may look too fast")
    return notes


def _measure_matmul_rates(notes: list[str]) -> dict[str, float]:
    """Rate of a large square matmul per dtype, strict FP32; dtypes that this build lacks are left out."""
    rates: dict[str, float] = {}
    for name in MATMUL_DTYPES:
        report_stage(f"the rate of a {name} matmul")
        try:
            with probes.float32_matmul_precision("ieee"):
                rates[name] = _measure_matmul_rate(getattr(torch, name))
        except (RuntimeError, NotImplementedError) as error:
            notes.append(f"no {name} matmul in this build: {str(error).splitlines()[0][:80]}")
    return rates


def _measure_matmul_rate(dtype: torch.dtype) -> float:
    """Best TFLOP/s over increasing sizes, until one matmul takes too long.

    The size cannot be fixed, since half precision without hardware support is very slow. Nor can a rate at a small size
    choose it: when other processes use the cores, thread synchronisation dominates a small matmul.
    """
    best = 0.0
    for n in MATMUL_SIZES:
        time_us = measure_steady_us(probes.matmul_call(dtype, n, "cpu"), "cpu", budget_s=0.1, best=True)
        best = max(best, probes.tflop_s(probes.matmul_flops(n), time_us))
        if time_us > MATMUL_TIME_LIMIT_US:
            break
    return best


def _measure_vector_rates(
    caches: Caches, dispatch_us: float, matrix: dict[str, float], notes: list[str]
) -> dict[str, float]:
    """Rate of vector FLOPs.

    A pointwise operator of torch is limited by cache bandwidth (a * b + c does 2 FLOPs on 16 bytes), so its rate would
    be far too low a ceiling for a fused one. A strict matmul uses the same FMA units from registers: the better of the
    two counts, and the note states both.
    """
    report_stage("the rate of pointwise arithmetic")
    l2_bytes = next((cache.capacity_bytes for cache in caches if cache.name == "L2"), 2**20)
    rates: dict[str, float] = {}
    for name in ("float32", "float64"):
        pointwise = _measure_pointwise_rate(getattr(torch, name), l2_bytes // 2, dispatch_us)
        rates[name] = max(pointwise, matrix.get(name, 0.0))
        notes.append(
            f"vector/{name} is the FMA rate of its matmul; a * b + c from L2 reaches {1e3 * pointwise:.0f} GFLOP/s"
        )
    return rates


def _measure_special_rates() -> dict[str, float]:
    """Rate of torch's own exp per dtype on values in the last-level cache, where one exp counts as 8 FLOPs."""
    rates = {}
    for name in ("float32", "float64", "bfloat16", "float16"):
        values = torch.linspace(-4.0, 4.0, EXP_ELEMENTS, dtype=torch.float32, device="cpu").to(getattr(torch, name))
        time_us = measure_steady_us(
            partial(torch.exp, values, out=torch.empty_like(values)), "cpu", budget_s=0.1, best=True
        )
        rates[name] = probes.tflop_s(EXP_FLOPS * EXP_ELEMENTS, time_us)
    return rates


def _measure_pointwise_rate(dtype: torch.dtype, working_set_bytes: int, dispatch_us: float) -> float:
    count = working_set_bytes // 4 // dtype.itemsize
    a, b, c, d = (torch.full((count,), 0.5, dtype=dtype, device="cpu") for _ in range(4))
    call = partial(torch.addcmul, a, b, c, out=d)
    time_us = probes.subtract_overhead(measure_steady_us(call, "cpu", budget_s=0.1, best=True), dispatch_us)
    return probes.tflop_s(2 * count, time_us)
