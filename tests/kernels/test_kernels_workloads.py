"""What the library is measured on: every kernel, every shape of its family, the peers that there are."""

from importlib import import_module

import pytest

pytest.importorskip("triton")

from kernelwright.benchmark.kernel_library import load_workloads
from kernelwright.core.library import EAGER, OURS
from kernelwright.kernels.catalog import KERNELS, family_package
from kernelwright.kernels.losses.workloads import LINEAR_SHAPE
from kernelwright.kernels.workload import import_peers


@pytest.mark.parametrize("name", KERNELS)
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
