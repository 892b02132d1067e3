"""Tuning of products: the space, the table that is written, and how it is read."""

import json
from dataclasses import replace

import pytest
import torch

from kernelwright.benchmark import product_tiles
from kernelwright.kernels.matmul.configs import MAX_SHARED_BYTES, GemmConfig
from kernelwright.kernels.matmul.launch import compile_product
from kernelwright.kernels.matmul.planning import BF16
from kernelwright.kernels.matmul.recorded import find_recorded
from kernelwright.kernels.matmul.search_space import CONSTRAINTS, Shape, candidate_configs

SHAPES = [(1, 6144, 4096), (16, 2112, 7168), (64, 4096, 4096), (128, 28672, 4096), (256, 512, 256), (8192, 8192, 8192)]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda one: "x".join(map(str, one)))
@pytest.mark.parametrize("transpose_b", [False, True])
def test_candidates_fit_the_chip(shape, transpose_b):
    variant = replace(BF16, transpose_b=transpose_b)
    found = candidate_configs(Shape(*shape, 132), variant)
    assert len(found) > 8 and len(set(found)) == len(found)
    for config in found:
        assert variant.oriented(config).shared_bytes(config) * config.min_blocks <= MAX_SHARED_BYTES
        assert config.swapped or config.block_m <= 64 or shape[0] > 64
    assert any(config.swapped for config in found) == (shape[0] <= 256)
    assert all(one.reason for one in CONSTRAINTS)


def test_splits_leave_no_part_of_k_empty():
    for config in candidate_configs(Shape(64, 512, 1024, 132), BF16):
        assert 4 * config.split_k <= 1024 // 64 or config.split_k == 1


@pytest.mark.parametrize(
    "config",
    [
        GemmConfig(128, 8, 8, 2, split_k=4, swapped=True),
        GemmConfig(128, 96, 6, 2, split_k=4),
        GemmConfig(64, 64, 8, 1, split_k=8, swapped=True),
        GemmConfig(128, 192, 4, 2, ping_pong=True),
    ],
    ids=str,
)
def test_unusual_candidates_compile_without_serialised_wgmma(config):
    warnings = compile_product(config, BF16.oriented(config), "sm_90a").warnings
    assert "serialized" not in warnings, warnings


def test_the_written_table_is_read_back(tmp_path, monkeypatch):
    best = GemmConfig(64, 64, 8, 1, split_k=2, swapped=True)
    row = {"m": 48, "n": 320, "k": 640, "b": "kn", "us": 3.0, "config": product_tiles._to_record(best)}
    path = tmp_path / "tuned.json"
    path.write_text(product_tiles._format("a GPU", [row]))
    assert json.loads(path.read_text())["machine"] == "a GPU"
    monkeypatch.setenv("KERNELWRIGHT_MATMUL_TUNED", str(path))
    variant = replace(BF16, transpose_b=True)
    assert find_recorded(40, 320, 640, 1, variant) == best
    assert find_recorded(24, 320, 640, 1, variant) is None


@pytest.mark.gpu
def test_tuning_finds_tiles_at_least_as_fast_as_the_choice(tmp_path):
    path = tmp_path / "tuned.json"
    rows = product_tiles.tune([(64, 1024, 1024, "nk"), (300, 512, 768, "kn")], str(path))
    assert [row["m"] for row in rows] == [64, 300]
    assert all(row["gain"] > 0.9 and row["cublas_us"] > 0 for row in rows)
    written = json.loads(path.read_text())
    assert written["machine"] == torch.cuda.get_device_name()
    assert all(row["gain"] >= product_tiles.MIN_GAIN for row in written["rows"])
