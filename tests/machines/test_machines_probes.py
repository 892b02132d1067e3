"""The arithmetic from times to rates, with a clock that is made up."""

from __future__ import annotations

import pytest
import torch

from kernelwright.machines import probes


@pytest.mark.parametrize(("mix", "expected_bytes"), [("read", 1200), ("write", 1200), ("copy", 1200), ("triad", 1200)])
def test_a_pass_moves_the_bytes_that_it_names(mix, expected_bytes):
    call, moved = probes.stream_benchmark(mix, probes.allocate_working_set(1200, "cpu"))
    call()
    assert moved == expected_bytes


@pytest.mark.parametrize(("mix", "moved"), [("copy", 8 * 12), ("triad", 12 * 8)])
def test_a_size_that_does_not_divide_is_not_overcounted(mix, moved):
    assert probes.stream_benchmark(mix, probes.allocate_working_set(4 * 25, "cpu"))[1] == moved


@pytest.mark.parametrize("mix", probes.STREAM_PATTERNS)
def test_a_pass_allocates_nothing(mix):
    call, _ = probes.stream_benchmark(mix, probes.allocate_working_set(4096, "cpu"))
    call()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as seen:
        call()
    assert sum(abs(event.cpu_memory_usage) for event in seen.key_averages() if event.key != "[memory]") < 256


def test_a_level_is_bytes_over_time_without_the_overhead():
    times = iter([11.0, 21.0, 41.0, 31.0])
    level = probes.measure_level("L2", 9000, 12_000, "cpu", lambda call: next(times), overhead_us=1.0)
    assert (level.name, level.capacity_bytes) == ("L2", 9000)
    assert (level.read_gb_s, level.write_gb_s) == (pytest.approx(1.2), pytest.approx(0.6))
    assert (level.copy_gb_s, level.triad_gb_s) == (pytest.approx(0.3), pytest.approx(0.4))


def test_a_working_set_is_taken_once_for_all_that_passes_over_it(monkeypatch):
    """Where four of the last cache are 2 GB, each would take a second and a half to be touched."""
    taken = []
    monkeypatch.setattr(probes, "allocate_working_set", lambda *given: taken.append(given) or torch.ones(300))
    probes.measure_level("DRAM", None, 1200, "cpu", lambda call: 1.0)
    assert taken == [(1200, "cpu")]


def test_an_overhead_never_eats_the_whole_time():
    assert probes.subtract_overhead(10.0, 4.0) == 6.0
    assert probes.subtract_overhead(10.0, 50.0) == 2.0


def test_rates_by_hand():
    assert probes.gb_s(2_000_000, 1000.0) == 2.0
    assert probes.tflop_s(probes.matmul_flops(1000), 1000.0) == pytest.approx(2.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int8])
def test_a_product_runs_and_leaves_the_random_state_alone(dtype):
    before = torch.get_rng_state()
    out = probes.matmul_call(dtype, 64, "cpu")()
    assert out.shape == (64, 64)
    assert torch.equal(before, torch.get_rng_state())


def test_measuring_ignores_the_callers_default_dtype():
    try:
        torch.set_default_dtype(torch.float64)
        call, moved = probes.stream_benchmark("read", probes.allocate_working_set(4000, "cpu"))
        assert call().dtype is torch.float32 and moved == 4000
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("before", ["highest", "high"])
def test_precision_flags_come_back_even_after_a_failure(before):
    flags = (torch.backends.cuda.matmul, torch.backends.mkldnn.matmul)
    try:
        torch.set_float32_matmul_precision(before)
        found = [flag.fp32_precision for flag in flags]
        with pytest.raises(ZeroDivisionError), probes.float32_matmul_precision("ieee"):
            assert [flag.fp32_precision for flag in flags] == ["ieee", "ieee"]
            1 / 0
        assert [flag.fp32_precision for flag in flags] == found
        assert torch.get_float32_matmul_precision() == before
    finally:
        torch.set_float32_matmul_precision("highest")
        for flag in flags:
            flag.fp32_precision = "none"
