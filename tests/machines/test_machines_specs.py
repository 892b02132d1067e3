"""Datasheets: dense, sourced, found by name and by running device, and usable with nothing installed or plugged in."""

from __future__ import annotations

import subprocess
import sys

import pytest

from kernelwright.core.errors import NotFoundError
from kernelwright.core.work import Work
from kernelwright.machines.floor import datasheet_bound_us, floor
from kernelwright.machines.specs import get_spec, machine_from_spec, match_spec, spec_names

ASKED_FOR = (
    "a100", "h100", "h100-pcie", "h200", "gh200", "b200", "l40s", "rtx4090", "a6000", "mi300x", "tpu-v5e",
)  # fmt: skip


def test_every_machine_that_was_asked_for_is_there():
    assert set(ASKED_FOR) <= set(spec_names())
    assert len(spec_names()) == len(set(spec_names()))


@pytest.mark.parametrize("name", spec_names())
def test_a_datasheet_is_plausible_and_sourced(name):
    spec = get_spec(name)
    assert len(spec.source) > 30 and "http" not in spec.source
    assert spec.dram_gb_s > 100 and spec.dram_bytes > 10e9
    assert all(rate > 0 for rate in [*spec.matrix_tflop_s.values(), *spec.vector_tflop_s.values()])
    assert set(spec.matrix_tflop_s) <= {
        "float64", "float32", "tfloat32", "bfloat16", "float16", "float8_e4m3fn", "int8",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "dense_bf16", "sparse_bf16"),
    [
        ("a100", 312, 624),
        ("h100", 989.4, 1978.9),
        ("h100-pcie", 756, 1513),
        ("h200", 989.5, 1979),
        ("b200", 2250, 4500),
        ("l40s", 362.05, 733),
        ("rtx4090", 165.2, 330.4),
        ("a6000", 154.8, 309.7),
        ("mi300x", 1307.4, 2614.9),
        ("tpu-v5e", 197, 394),
    ],
)
def test_tensor_figures_are_dense(name, dense_bf16, sparse_bf16):
    rate = get_spec(name).matrix_tflop_s["bfloat16"]
    assert rate == pytest.approx(dense_bf16) and rate < 0.6 * sparse_bf16


@pytest.mark.parametrize("name", [name for name in spec_names() if name != "tpu-v5e"])
def test_narrower_formats_double_the_rate_at_most(name):
    """A sparse figure in one row and a dense one in the next would show as a factor of four."""
    rates = get_spec(name).matrix_tflop_s
    assert rates["bfloat16"] == rates["float16"]
    assert rates["bfloat16"] / rates["tfloat32"] == pytest.approx(2, rel=0.03)
    assert rates.get("float8_e4m3fn", rates["bfloat16"]) / rates["bfloat16"] <= 2.03
    assert rates["float32"] <= rates["tfloat32"]


@pytest.mark.parametrize(
    ("device_name", "multiprocessors", "expected"),
    [
        ("NVIDIA H200", 132, "h200"),
        ("NVIDIA H100 80GB HBM3", 132, "h100"),
        ("NVIDIA H100 PCIe", 114, "h100-pcie"),
        ("NVIDIA GH200 480GB", 132, "gh200"),
        ("NVIDIA GH200 144G HBM3e", 132, "gh200-144gb"),
        ("NVIDIA A100-SXM4-80GB", 108, "a100"),
        ("NVIDIA B200", 148, "b200"),
        ("NVIDIA GeForce RTX 4090", 128, "rtx4090"),
        ("AMD Instinct MI300X", 304, "mi300x"),
        ("NVIDIA H200", 16, None),
        ("NVIDIA H200 MIG 1g.18gb", 16, None),
        ("NVIDIA H200 NVL", 132, None),
        ("NVIDIA H100 NVL", 132, None),
        ("NVIDIA A100-SXM4-40GB", 108, None),
        ("NVIDIA GB200", 152, None),
        ("NVIDIA GeForce RTX 4090 D", 114, None),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", 76, None),
        ("Tesla V100-SXM2-16GB", 80, None),
    ],
)
def test_a_running_device_finds_its_own_datasheet_or_none(device_name, multiprocessors, expected):
    spec = match_spec(device_name, multiprocessors)
    assert (spec.name if spec else None) == expected


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(NotFoundError) as caught:
        machine_from_spec("h900")
    assert "'h900'" in caught.value.message
    assert all(name in caught.value.next for name in ASKED_FOR)


@pytest.mark.parametrize("written", ["H200", " h200 ", "H100 PCIe", "h100_pcie", "TPU v5e"])
def test_a_name_may_be_written_as_people_write_it(written):
    assert machine_from_spec(written).provenance == "datasheet"


@pytest.mark.parametrize("name", spec_names())
def test_every_predicted_machine_answers_with_a_floor(name):
    here = machine_from_spec(name)
    work = Work(flops={"matrix/bfloat16": 10**12, "vector/float32": 10**9}, bytes_read=10**9, bytes_written=10**9)
    answer = floor(work, here)
    assert answer.provenance == "datasheet"
    assert answer.memory_us == pytest.approx(2e9 / here.spec.dram_gb_s / 1e3)
    assert datasheet_bound_us(work, here.spec) <= answer.memory_us


def test_a_predicted_machine_needs_neither_torch_nor_a_gpu():
    program = (
        "import sys, kernelwright; m = kernelwright.machine('cuda', spec='h200');"
        "assert 'torch' not in sys.modules, 'torch was imported';"
        "print(m.name, m.spec.name, [level.name for level in m.levels])"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip() == "NVIDIA H200 SXM h200 ['L2', 'DRAM']"


def test_launch_costs_of_a_prediction_are_marked_as_no_datasheet_figure():
    here = machine_from_spec("h200")
    assert here.launch_us and any("not from the datasheet" in note for note in here.notes)
    assert machine_from_spec("tpu-v5e").launch_us is None
