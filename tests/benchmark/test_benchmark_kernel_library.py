"""A member of the library beside peers that fail in every way there is, on the GPU."""

from __future__ import annotations

import pytest
import torch

from kernelwright.benchmark.kernel_library import measure
from kernelwright.core.library import COMPILED, EAGER, OURS
from kernelwright.core.records import Work
from kernelwright.kernels.workload import EACH_WAY, Direction, Program, Workload, normal

pytestmark = pytest.mark.gpu
SIZE = 64, 256


def workload(direction: Direction, **peers: Program) -> Workload:
    return Workload(
        kernel="made_up",
        what=direction,
        size=SIZE,
        direction=direction,
        inputs=lambda: (normal(*SIZE, grad=direction != "forward"),),
        programs={OURS: lambda x: torch.tanh(x), EAGER: torch.tanh, **peers},
        reference=torch.tanh,
        work=Work(flops=0, bytes_read=SIZE[0] * SIZE[1] * 2, bytes_written=SIZE[0] * SIZE[1] * 2),
    )


def raising(x: torch.Tensor) -> torch.Tensor:
    raise RuntimeError("no such kernel\nand a long story")


def reading(x: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x) if float(x.sum()) < 1e9 else x


@pytest.mark.parametrize("direction", EACH_WAY)
def test_every_arm_is_timed_and_has_its_error(direction: Direction) -> None:
    row = measure(workload(direction, peer=torch.tanh))
    assert [arm.name for arm in row.arms] == [OURS, EAGER, COMPILED, "peer"]
    assert all(arm.time_us and arm.call_us and 0 < max(arm.errors) < 0.01 for arm in row.arms)
    assert row.copy_us > 0
    assert row.accuracy == pytest.approx(1)


def test_a_peer_that_fails_says_why_and_harms_nobody() -> None:
    peers = {"raises": raising, "is wrong": lambda x: x, "gives two": lambda x: (x.tanh(), x), "reads": reading}
    row = measure(workload("forward", **peers))
    failed = {arm.name: arm.failed for arm in row.arms if arm.failed}
    assert set(failed) == set(peers)
    assert failed["raises"] == "no such kernel"
    assert failed["is wrong"].startswith("wrong: errors of 0.")
    assert all(arm.time_us is None for arm in row.arms if arm.failed)
    assert measure(workload("backward")).ours.time_us


@pytest.mark.parametrize("name", [OURS, EAGER])
def test_ours_and_eager_must_not_fail(name: str) -> None:
    with pytest.raises(RuntimeError, match="no such kernel"):
        measure(workload("forward", **{name: raising}))
