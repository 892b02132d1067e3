"""A member of the library beside peers that fail in every way there is, on the GPU."""

from __future__ import annotations

import pytest
import torch

from kernelwright.benchmark.kernel_library import measure_workload
from kernelwright.core.library import EAGER, OURS, TORCH_COMPILE
from kernelwright.core.work import Work
from kernelwright.kernels.workload import DIRECTIONS, Direction, Implementation, Workload, randn

pytestmark = pytest.mark.gpu
SIZE = 64, 256


def workload(direction: Direction, **peers: Implementation) -> Workload:
    return Workload(
        kernel="made_up",
        use_case=direction,
        size=SIZE,
        direction=direction,
        make_inputs=lambda: (randn(*SIZE, grad=direction != "forward"),),
        implementations={OURS: lambda x: torch.tanh(x), EAGER: torch.tanh, **peers},
        reference=torch.tanh,
        work=Work(flops=0, bytes_read=SIZE[0] * SIZE[1] * 2, bytes_written=SIZE[0] * SIZE[1] * 2),
    )


def raising(x: torch.Tensor) -> torch.Tensor:
    raise RuntimeError("no such kernel\nand a long story")


def reading(x: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x) if float(x.sum()) < 1e9 else x


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_every_variant_is_timed_and_has_its_error(direction: Direction) -> None:
    row = measure_workload(workload(direction, peer=torch.tanh))
    assert [variant.name for variant in row.variants] == [OURS, EAGER, TORCH_COMPILE, "peer"]
    assert all(variant.time_us and variant.call_us and 0 < max(variant.errors) < 0.01 for variant in row.variants)
    assert row.copy_us > 0
    assert row.error_over_eager == pytest.approx(1)


def test_a_peer_that_fails_says_why_and_harms_nobody() -> None:
    peers = {"raises": raising, "is wrong": lambda x: x, "gives two": lambda x: (x.tanh(), x), "reads": reading}
    row = measure_workload(workload("forward", **peers))
    failed = {variant.name: variant.failure for variant in row.variants if variant.failure}
    assert set(failed) == set(peers)
    assert failed["raises"] == "no such kernel"
    assert failed["is wrong"].startswith("wrong result: relative errors 0.")
    assert all(variant.time_us is None for variant in row.variants if variant.failure)
    assert measure_workload(workload("backward")).ours.time_us


@pytest.mark.parametrize("name", [OURS, EAGER])
def test_ours_and_eager_must_not_fail(name: str) -> None:
    with pytest.raises(RuntimeError, match="no such kernel"):
        measure_workload(workload("forward", **{name: raising}))
