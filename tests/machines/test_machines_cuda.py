"""The logic of the CUDA measurement on any machine; one test needs the device."""

from __future__ import annotations

import pytest
import torch

import kernelwright
from kernelwright.machines import cuda, probes
from kernelwright.machines.store import is_valid

MIB, GIB = 2**20, 2**30


def test_hbm_is_measured_beyond_l2():
    assert cuda.dram_working_set_bytes(50 * MIB, 140 * GIB) == GIB
    assert cuda.dram_working_set_bytes(512 * MIB, 140 * GIB) == 2 * GIB
    assert cuda.dram_working_set_bytes(50 * MIB, 2 * GIB) == 512 * MIB, "a quarter of what is free at most"


def test_l2_is_measured_inside_itself():
    assert cuda.l2_working_set_bytes(48 * MIB) == 16 * MIB


def test_a_pass_in_a_graph_is_its_share_of_the_replay(monkeypatch):
    asked = {}

    class Graph:
        def replay(self):
            asked["replayed"] = True

    def capture(call, passes):
        asked["passes"] = passes
        return Graph()

    def clock(call):
        call()
        return 100.0

    monkeypatch.setattr(cuda, "capture_graph", capture)
    assert cuda.measure_in_graph_us(lambda: None, 50, clock) == 2.0
    assert asked == {"passes": 50, "replayed": True}


@pytest.fixture
def small_products(monkeypatch):
    small = tuple((name, operands, 64, least) for name, operands, _, least in cuda.MATMULS)
    monkeypatch.setattr(cuda, "MATMULS", small)


def test_products_that_the_device_cannot_do_are_left_out_with_a_note(small_products):
    notes: list[str] = []
    found = cuda.measure_matmul_rates("cpu", 75, lambda call: 1.0, notes)
    assert set(found) == {"float16", "float32", "float64", "int8"}
    assert found["float32"] == pytest.approx(probes.matmul_flops(64) / 1e6)
    assert "no float8_e4m3fn matmul: it needs compute capability 8.9" in notes


def test_a_failing_product_costs_no_other(small_products):
    def clock(call):
        out = call()
        if out.dtype is torch.float64:
            raise torch.OutOfMemoryError("CUDA out of memory.\nmore text")
        return 2.0

    notes: list[str] = []
    found = cuda.measure_matmul_rates("cpu", 80, clock, notes)
    assert "float64" not in found and "float32" in found
    assert "float64 matmul could not be measured: CUDA out of memory." in notes


def test_tf32_is_on_for_its_own_product_only(small_products):
    seen: list[str] = []

    def clock(call):
        seen.append(torch.backends.cuda.matmul.fp32_precision)
        return 1.0

    before = torch.backends.cuda.matmul.fp32_precision
    cuda.measure_matmul_rates("cpu", 80, clock, [])
    order = [name for name, *_, least in cuda.MATMULS if least <= 80]
    assert dict(zip(order, seen, strict=True))["tfloat32"] == "tf32"
    assert seen.count("tf32") == 1
    assert torch.backends.cuda.matmul.fp32_precision == before


def test_a_vector_rate_without_a_compiler_is_that_of_the_strict_product(monkeypatch):
    def refuse(dtype):
        raise RuntimeError("no NVRTC")

    monkeypatch.setattr(cuda, "_measure_fma_rate", refuse)
    notes: list[str] = []
    assert cuda._measure_vector_rates({"float32": 50.0}, notes) == {"float32": 50.0}
    assert "vector/float32 could not be measured: no NVRTC" in notes


def test_errors_that_mean_a_bug_are_not_swallowed():
    def broken():
        raise KeyError("oops")

    with pytest.raises(KeyError):
        cuda._measure_or_note("x", broken, [])


@pytest.mark.gpu
def test_this_gpu_for_real(tmp_path, monkeypatch):
    monkeypatch.setenv("KERNELWRIGHT_CACHE", str(tmp_path))
    before = torch.backends.cuda.matmul.fp32_precision
    here = kernelwright.machine("cuda")
    assert is_valid(here) and [level.name for level in here.levels] == ["L2", "DRAM"]
    assert here.dispatch_us and here.launch_us and here.graph_launch_us
    assert {"float32", "float16"} <= set(here.matrix_tflop_s) and "float32" in here.vector_tflop_s
    assert torch.backends.cuda.matmul.fp32_precision == before
    if here.spec:
        assert here.levels[-1].copy_gb_s < here.spec.dram_gb_s
        assert all(rate < 1.05 * here.spec.matrix_tflop_s[name] for name, rate in here.matrix_tflop_s.items())
