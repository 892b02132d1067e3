"""What is measured on a CPU and how large; the times are made up except in the one slow test."""

from __future__ import annotations

import msgspec
import pytest
import torch

import kernelwright
from kernelwright import machines
from kernelwright.core import progress
from kernelwright.core.machine import MemoryLevel
from kernelwright.machines import cpu, probes, refresh_memory
from kernelwright.machines.caches import CpuCache, cpu_caches
from kernelwright.machines.store import is_valid

MIB = 2**20


def write_cache(sysfs, cpu_index, index, level, kind, size, sharers):
    folder = sysfs / f"cpu{cpu_index}" / "cache" / f"index{index}"
    folder.mkdir(parents=True)
    for name, text in (("level", level), ("type", kind), ("size", size), ("shared_cpu_list", sharers)):
        (folder / name).write_text(f"{text}\n")


@pytest.fixture
def four_cores(tmp_path):
    """Four cores in two clusters: an L1 and L2 each, an L3 per cluster."""
    for core in range(4):
        write_cache(tmp_path, core, 0, 1, "Instruction", "32K", core)
        write_cache(tmp_path, core, 1, 1, "Data", "48K", core)
        write_cache(tmp_path, core, 2, 2, "Unified", "1024K", core)
        write_cache(tmp_path, core, 3, 3, "Unified", "32M", "0-1" if core < 2 else "2-3")
    return tmp_path


@pytest.mark.parametrize(
    ("threads", "l1", "l2", "l3"),
    [(1, 48 << 10, MIB, 32 * MIB), (2, 96 << 10, 2 * MIB, 64 * MIB), (8, 192 << 10, 4 * MIB, 64 * MIB)],
)
def test_a_cache_counts_once_per_thread_or_per_cluster(four_cores, threads, l1, l2, l3):
    found = cpu_caches(threads, sysfs=four_cores, cpus={0, 1, 2, 3})
    assert [cache.name for cache in found] == ["L1", "L2", "L3"]
    assert [cache.capacity_bytes for cache in found] == [l1, l2, l3]


def test_only_the_cpus_that_may_be_used_count(four_cores):
    assert cpu_caches(8, sysfs=four_cores, cpus={0, 1})[-1].capacity_bytes == 32 * MIB


def test_a_system_that_tells_nothing_or_nonsense_has_no_caches(tmp_path):
    assert cpu_caches(2, sysfs=tmp_path, cpus={0}) == ()
    write_cache(tmp_path, 0, 0, 1, "Data", "many", 0)
    assert cpu_caches(2, sysfs=tmp_path, cpus={0}) == ()


def test_main_memory_is_measured_beyond_the_caches():
    assert cpu.dram_working_set_bytes(32 * MIB, 64 << 30) == 256 * MIB
    assert cpu.dram_working_set_bytes(256 * MIB, 64 << 30) == 1024 * MIB
    assert cpu.dram_working_set_bytes(256 * MIB, 2 << 30) == 512 * MIB, "a quarter of what is free at most"


def test_a_cache_is_measured_inside_itself():
    assert cpu.cache_working_set_bytes(CpuCache("L2", MIB, 2)) == MIB
    assert cpu.cache_working_set_bytes(CpuCache("L3", 32 * MIB, 1)) == 8 * MIB
    assert cpu.cache_working_set_bytes(CpuCache("L3", 1024 * MIB, 1)) == cpu.MAX_CACHE_SET_BYTES


def test_products_grow_while_they_are_short(monkeypatch):
    """The third size is the first long one, so the fourth is never tried; the best rate counts."""
    sizes = []

    def steady_us(call, device, **how):
        n = call().shape[0]
        sizes.append(n)
        return {32: 100.0, 64: 1000.0, 128: 20_000.0}[n]

    monkeypatch.setattr(cpu, "measure_steady_us", steady_us)
    monkeypatch.setattr(cpu, "MATMUL_SIZES", (32, 64, 128, 256))
    assert cpu._measure_matmul_rate(torch.float32) == pytest.approx(2 * 32**3 / 100 / 1e6)
    assert sizes == [32, 64, 128]


@pytest.fixture
def made_up_clock(monkeypatch):
    """Every call is made once and said to take 100 us."""
    budgets = []

    def steady_us(call, device, **how):
        call()
        budgets.append(how.get("budget_s", 0.3))
        return 100.0

    monkeypatch.setattr(cpu, "measure_steady_us", steady_us)
    monkeypatch.setattr(cpu, "MIN_DRAM_SET_BYTES", 3 * MIB)
    monkeypatch.setattr(cpu, "MATMUL_SIZES", (64, 128))
    monkeypatch.setattr(cpu, "FAULT_TEST_BYTES", MIB)
    monkeypatch.setattr(cpu, "cpu_caches", lambda threads: (CpuCache("L1", 32768, 2), CpuCache("L2", MIB // 4, 2)))
    return budgets


def test_the_whole_measurement_with_a_made_up_clock(made_up_clock):
    stages = []
    progress.set_listener(lambda what, limit_s: stages.append(what))
    try:
        here = cpu.measure_cpu()
    finally:
        progress.set_listener(None)
    assert [level.name for level in here.levels] == ["L1", "L2", "DRAM"]
    assert here.levels[-1].triad_gb_s == pytest.approx(3 * MIB / 100 / 1e3, rel=0.01)
    assert here.levels[0].read_gb_s and here.levels[0].copy_gb_s is None
    assert here.matrix_tflop_s["float32"] == pytest.approx(2 * 128**3 / 100 / 1e6)
    assert here.vector_tflop_s["float32"] >= here.matrix_tflop_s["float32"]
    assert here.threads == torch.get_num_threads() and here.dispatch_us == 100
    assert here.page_fault_us_per_mib == 0 and here.spec is None and here.launch_us is None
    assert is_valid(here) and any("main memory" in stage for stage in stages)
    assert sum(made_up_clock) < 8, "the budgets together are the time that it takes"


def test_a_product_that_this_build_lacks_is_left_out_with_a_note(made_up_clock, monkeypatch):
    from kernelwright.machines import probes

    def refuse(dtype, n, device, real=probes.matmul_call):
        if dtype is torch.int8:
            raise RuntimeError("no int8 here\nsecond line")
        return real(dtype, n, device)

    monkeypatch.setattr(probes, "matmul_call", refuse)
    here = cpu.measure_cpu()
    assert "int8" not in here.matrix_tflop_s and "float32" in here.matrix_tflop_s
    assert "no int8 matmul in this build: no int8 here" in here.notes


def test_refreshing_replaces_main_memory_only(made_up_clock, monkeypatch):
    here = cpu.measure_cpu()
    monkeypatch.delitem(machines._MEASURED_AT_S, "cpu")
    real, measured = cpu.measure_dram, []
    monkeypatch.setattr(cpu, "measure_dram", lambda *given, **named: measured.append(1) or real(*given, **named))
    again = refresh_memory(here)
    assert measured and again.levels[:-1] == here.levels[:-1] and again.levels[-1].name == "DRAM"
    assert again.matrix_tflop_s == here.matrix_tflop_s
    spec = kernelwright.machine(spec="a100")
    assert refresh_memory(spec) is spec


def test_main_memory_that_takes_too_long_is_not_measured_again(monkeypatch):
    here = kernelwright.machine(spec="a100")
    measured = msgspec.structs.replace(here, provenance="measured", device="cpu")
    monkeypatch.setattr(cpu, "measure_dram", lambda *_, **__: pytest.fail("main memory was measured"))
    assert refresh_memory(measured, limit_s=0.0) is measured


def test_the_cpu_has_a_name():
    assert len(cpu.cpu_name()) > 1


@pytest.mark.exhaustive
def test_this_cpu_for_real(tmp_path, monkeypatch):
    monkeypatch.setenv("KERNELWRIGHT_CACHE", str(tmp_path))
    here = kernelwright.machine("cpu")
    assert is_valid(here) and kernelwright.machine("cpu") == here
    assert {"float32", "float64"} <= set(here.matrix_tflop_s)


def test_a_near_cache_is_never_slower_than_what_lies_behind_it():
    levels = (
        MemoryLevel(name="L2", read_gb_s=27.0),
        MemoryLevel(name="L3", read_gb_s=100.0, copy_gb_s=90.0),
        MemoryLevel(name="DRAM", read_gb_s=50.0, copy_gb_s=95.0),
    )
    near, middle, far = probes.make_bandwidths_monotonic(levels)
    assert (near.read_gb_s, near.copy_gb_s) == (100.0, None)
    assert (middle.read_gb_s, middle.copy_gb_s) == (100.0, 95.0)
    assert far == levels[-1]
