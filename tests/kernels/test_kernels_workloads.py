"""What the library is measured on: every kernel, every shape of its family, the peers that there are."""

import subprocess
import sys
from importlib import import_module

import pytest

pytest.importorskip("triton")

from kernelwright.benchmark.kernel_library import load_workloads
from kernelwright.core.library import EAGER, OURS
from kernelwright.evidence import kernels
from kernelwright.evidence.artifact_digest import HOPPER
from kernelwright.evidence.source_digests import find_headers
from kernelwright.kernels.catalog import KERNELS, family_package
from kernelwright.kernels.losses.workloads import LINEAR_SHAPE
from kernelwright.kernels.matmul.planning import FOLDER, FP32, Product, plan_launches
from kernelwright.kernels.matmul.selection import MIN_EMULATED_K
from kernelwright.kernels.matmul.spec import SQUARES, TOKENS, WEIGHTS
from kernelwright.kernels.matmul.split_layout import MIN_TILED_ELEMENTS
from kernelwright.kernels.matmul.workloads import full_workloads
from kernelwright.kernels.workload import import_peers

ROW_KERNELS = [name for name in KERNELS if not family_package(name).endswith(".matmul")]


@pytest.mark.parametrize("name", ROW_KERNELS)
def test_every_use_is_on_every_shape_of_the_family(name):
    shapes = import_module(f"{family_package(name)}.spec").SHAPES if name != "linear_cross_entropy" else (LINEAR_SHAPE,)
    by_use = {}
    for one in load_workloads(name):
        assert one.kernel == name
        assert list(one.implementations)[:2] == [OURS, EAGER]
        assert one.work.bytes_read > 0
        assert one.work.bytes_written > 0 or "rows" in one.use_case or name == "cross_entropy"
        by_use.setdefault(one.use_case, []).append(one.size)
    assert all(sizes == list(shapes) for sizes in by_use.values())
    assert any(one.direction != "forward" for one in load_workloads(name))


@pytest.mark.parametrize("name", ["gemm", "linear"])
def test_a_product_is_recorded_on_shapes_of_its_use(name):
    recorded = {(one.use_case, one.size): one for one in load_workloads(name)}
    every = {(one.use_case, one.size) for one in full_workloads(name)}
    assert recorded.keys() <= every
    for (use_case, (m, n, k)), one in recorded.items():
        assert list(one.implementations)[:2] == [OURS, EAGER]
        products = 2 if "backward" in use_case or use_case == "swiglu" else 1
        assert one.work.total_flops == 2 * m * n * k * products
        itemsize = 1 if "fp8" in use_case else 4 if "fp32" in use_case else 2
        assert one.work.total_bytes >= (m * k + n * k) * itemsize
        plan = one.plan(HOPPER)
        is_tiled = use_case == "fp32, rows of b" and k * n >= MIN_TILED_ELEMENTS
        launches = {"backward": 2, "fp32": 3, "fp32, rows of b": 3 + is_tiled if k >= MIN_EMULATED_K else 0}
        assert len(plan) == launches.get(use_case, 1)
        assert all(launch.source.is_file() for launch in plan)
    with_peer = {use_case for (use_case, _), one in recorded.items() if "cublasLt" in one.implementations}
    uses = {use_case for use_case, _ in recorded} - {"fp8, block scales"}
    assert with_peer == (uses if name == "gemm" else set())


@pytest.mark.parametrize(("n", "is_stored"), [(4096, "1"), (5921, "0")])
def test_the_planned_kernel_writes_rows_that_tma_cannot_from_registers(n, is_stored):
    product = Product(1024, n, 256, FP32, terms=2)
    launch = plan_launches((product,), HOPPER)[1]
    assert launch.macros["TMA_STORE"] == is_stored


def test_all_products_are_the_squares_and_the_weights_of_models_in_both_layouts():
    every = [(one.use_case, one.size) for one in full_workloads("gemm")]
    for use_case in ("bf16", "bf16, rows of b"):
        shapes = [shape for name, shape in every if name == use_case]
        assert set(shapes) == {*SQUARES, *((tokens, *weight) for weight in WEIGHTS for tokens in TOKENS)}
        assert len(shapes) == len(set(shapes))


def test_a_baseline_of_benchmark_is_imported_in_its_first_call():
    code = "import sys, kernelwright.benchmark.kernel_library as k; list(k.load_workloads('gemm'));"
    code += "print('kernelwright.benchmark.cublaslt' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "False"


def test_a_product_of_other_code_is_other_evidence():
    fp32, bf16 = (next(one for one in load_workloads("gemm") if one.use_case == name) for name in ("fp32", "bf16"))
    digests = [kernels._build_workload(one, "NVIDIA H200").artifact for one in (fp32, bf16)]
    assert len(set(digests)) == 2 and all(digests)


def test_headers_next_to_a_source_are_part_of_its_digest():
    folder = FOLDER.parent / "rows"
    names = {path.name for path in find_headers([FOLDER / "gemm_sm90.cu"], folder)}
    assert {"recompute_lost.cuh", "wgmma.cuh"} <= names
    assert "cluster.cuh" in {path.name for path in find_headers([FOLDER.parent / "norms/long_rows.cu"], folder)}


def test_only_what_is_random_has_no_reference():
    assert {name for name in KERNELS if any(one.reference is None for one in load_workloads(name))} == {"dropout_add"}


def test_backward_moves_more_than_forward():
    moved = {one.use_case: one.work.bytes_read + one.work.bytes_written for one in load_workloads("rms_norm")}
    assert moved["forward"] < moved["backward"] < moved["residual backward"]


def test_peers_are_those_that_can_be_imported():
    found = import_peers(
        there=("math:sqrt", lambda run: run), gone=("no_such_peer:run", lambda run: run), other=("math:no", lambda r: r)
    )
    assert list(found) == ["there"]
    assert found["there"](4.0) == 2.0
