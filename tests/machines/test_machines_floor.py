"""Floors and hard bounds against numbers worked out by hand."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.core.errors import InternalError
from kernelwright.core.machine import Machine, MemoryLevel
from kernelwright.core.work import Work
from kernelwright.machines.floor import bandwidth_gb_s, datasheet_bound_us, floor
from kernelwright.machines.specs import get_spec

DRAM = MemoryLevel(name="DRAM", capacity_bytes=2**34, read_gb_s=100, write_gb_s=40, copy_gb_s=60, triad_gb_s=75)
L2 = MemoryLevel(name="L2", capacity_bytes=2**20, read_gb_s=1000, write_gb_s=1000, copy_gb_s=1000, triad_gb_s=1000)
L1 = MemoryLevel(name="L1", capacity_bytes=2**15)
HERE = Machine(
    name="by hand",
    device="cpu",
    provenance="measured",
    levels=(L1, L2, DRAM),
    matrix_tflop_s={"float32": 0.5, "bfloat16": 2.0, "float16": 0.01, "float64": 0.25},
    vector_tflop_s={"float32": 0.4, "float64": 0.2},
)


@pytest.mark.parametrize(
    ("read", "written", "expected_us"),
    [
        (1_000_000, 0, 10.0),
        (0, 1_000_000, 25.0),
        (500_000, 500_000, 1e6 / 60e3),
        (800_000, 400_000, 1.2e6 / 75e3),
        (750_000, 250_000, 1e6 * (0.25 / 100e3 + 0.75 / 75e3)),
        (250_000, 750_000, 1e6 * (0.5 / 60e3 + 0.5 / 40e3)),
    ],
    ids=["read", "write", "copy", "triad", "between read and triad", "between copy and write"],
)
def test_memory_time_follows_the_mix(read, written, expected_us):
    answer = floor(Work(bytes_read=read, bytes_written=written), HERE)
    assert answer.memory_us == pytest.approx(expected_us)
    assert (answer.time_us, answer.limiter, answer.compute_us) == (answer.memory_us, "DRAM", 0.0)


@pytest.mark.parametrize(("share", "expected"), [(0.0, 60), (0.4, 60), (0.5, 60), (1.0, 60)])
def test_with_one_figure_every_mix_uses_it(share, expected):
    assert bandwidth_gb_s(MemoryLevel(name="DRAM", copy_gb_s=60), share) == expected


def test_beyond_the_known_mixes_the_nearest_counts():
    level = MemoryLevel(name="DRAM", triad_gb_s=75, copy_gb_s=60)
    assert (bandwidth_gb_s(level, 0.0), bandwidth_gb_s(level, 1.0)) == (75, 60)


def test_a_level_without_figures_has_no_bandwidth():
    assert bandwidth_gb_s(L1, 0.5) is None


@given(st.floats(0, 1), st.floats(0, 1))
def test_bandwidth_stays_between_the_measured_mixes(share, other):
    low, high = sorted((share, other))
    slow, fast = bandwidth_gb_s(DRAM, high), bandwidth_gb_s(DRAM, low)
    assert 40 <= slow <= fast * (1 + 1e-12) <= 100 * (1 + 1e-12)


def test_warm_work_runs_from_the_smallest_known_level_that_holds_it():
    work = Work(bytes_read=1000, bytes_written=0)
    assert floor(work, HERE, cold_bytes=0).limiter == "L2", "L1 has no figures, so it cannot answer"
    assert floor(work, HERE, cold_bytes=0, footprint_bytes=2**20).limiter == "L2"
    assert floor(work, HERE, cold_bytes=0, footprint_bytes=2**20 + 1).limiter == "DRAM"
    assert floor(work, HERE).limiter == "DRAM"
    assert floor(work, HERE, cold_bytes=0).time_us == pytest.approx(1e-3)


def test_warm_work_on_a_datasheet_falls_back_to_main_memory():
    bare = msgspec.structs.replace(HERE, levels=(L1, DRAM))
    assert floor(Work(bytes_read=8), bare, cold_bytes=0).limiter == "DRAM"


@pytest.mark.parametrize(
    ("unit", "rate"),
    [
        ("matrix/float32", 0.5),
        ("matrix/float64", 0.25),
        ("matrix/bfloat16", 2.0),
        ("matrix/float16", 0.5),
        ("matrix/float8_e4m3fn", 2.0),
        ("matrix/float8_e5m2", 2.0),
        ("matrix/int8", 0.4),
        ("matrix/complex64", 0.5),
        ("matrix/unheard_of", 0.5),
        ("vector/float32", 0.4),
        ("vector/float64", 0.2),
        ("vector/float16", 0.4),
        ("vector/bfloat16", 0.4),
        ("vector/int64", 0.4),
        ("vector/bool", 0.4),
    ],
)
def test_compute_time_of_one_unit(unit, rate):
    answer = floor(Work(flops={unit: 10**9}), HERE)
    assert answer.compute_us == pytest.approx(1e9 / rate / 1e6)
    assert answer.limiter == unit


def test_slow_half_precision_is_no_ceiling_when_float32_is_faster():
    """A build of torch without FP16 products runs them at 3 GFLOP/s; widening to FP32 is honest and faster."""
    half = floor(Work(flops={"matrix/float16": 10**9}), HERE).time_us
    assert half == floor(Work(flops={"matrix/float32": 10**9}), HERE).time_us


def test_units_add_up_and_the_longest_is_named():
    answer = floor(Work(flops={"matrix/float32": 5 * 10**8, "vector/float32": 2 * 10**9}, bytes_read=100), HERE)
    assert answer.compute_us == pytest.approx(1000 + 5000)
    assert (answer.time_us, answer.limiter) == (answer.compute_us, "vector/float32")


def test_a_machine_with_only_matrix_units_errs_on_the_low_side():
    tensor_only = msgspec.structs.replace(HERE, matrix_tflop_s={"bfloat16": 197, "int8": 393}, vector_tflop_s={})
    assert floor(Work(flops={"vector/float32": 393 * 10**6}), tensor_only).compute_us == pytest.approx(1)


def test_no_work_takes_no_time():
    answer = floor(Work(), HERE)
    assert (answer.time_us, answer.memory_us, answer.compute_us) == (0, 0, 0)


def test_units_without_flops_do_not_limit():
    assert floor(Work(flops={"matrix/float32": 0}, bytes_read=1), HERE).limiter == "DRAM"


def test_a_machine_that_knows_nothing_says_so():
    empty = msgspec.structs.replace(HERE, levels=(L1,), matrix_tflop_s={}, vector_tflop_s={})
    with pytest.raises(InternalError, match="no bandwidth of L1"):
        floor(Work(bytes_read=1), empty)
    with pytest.raises(InternalError, match="no arithmetic rate"):
        floor(Work(flops={"vector/float32": 1}), empty)


@given(
    read=st.integers(0, 10**12),
    written=st.integers(0, 10**12),
    flops=st.dictionaries(st.sampled_from(["matrix/float32", "matrix/int8", "vector/float64"]), st.integers(0, 10**15)),
)
def test_more_work_never_takes_less_time(read, written, flops):
    work = Work(flops=flops, bytes_read=read, bytes_written=written)
    answer = floor(work, HERE)
    assert answer.time_us == max(answer.memory_us, answer.compute_us) >= 0
    assert floor(work + work, HERE).time_us >= answer.time_us


def test_the_hard_bound_is_bytes_beyond_the_cache_at_the_peak():
    spec = get_spec("h200")
    work = Work(flops={"matrix/float32": 10**18}, bytes_read=48 * 10**8, bytes_written=52_428_800)
    assert datasheet_bound_us(work, spec) == pytest.approx(1000.0), "4.8 GB at 4.8 TB/s once 50 MiB stay in L2"
    assert datasheet_bound_us(Work(bytes_read=10**6, flops={"vector/float32": 10**15}), spec) == 0
    assert datasheet_bound_us(work, None) is None
