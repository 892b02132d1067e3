"""A climb verifies every rung before it times it, and a record of it says that it is one."""

import shutil

import msgspec
import pytest

from kernelwright.benchmark import ladder as judge
from kernelwright.benchmark.ladder import climb
from kernelwright.commands.ladder_code import with_code
from kernelwright.core.errors import NotFoundError, UsageError
from kernelwright.core.ladder import Climb
from kernelwright.evidence import climbs
from kernelwright.evidence.climbs import checked_beside_recorded, recorded_climb
from kernelwright.evidence.kinds import Request
from kernelwright.evidence.recording import record, refresh
from kernelwright.evidence.status import status
from kernelwright.evidence.tables import tables
from kernelwright.ladders import reading
from kernelwright.machines import predicted_machine


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A copy of gemm_cpu's first rungs, on few shapes, for a test to change."""
    home = tmp_path / "ladders"
    shutil.copytree(reading.HOME / "gemm_cpu", home / "gemm_cpu", ignore=shutil.ignore_patterns("0[3-9]*"))
    task = home / "gemm_cpu" / "gemm_cpu.py"
    task.write_text(
        task.read_text() + "\n\nSHAPES = ((3, 5, 7), (0, 2, 1), (2, 3, 0), (33, 17, 65))\nSIZES = ((48,) * 3,)\n"
    )
    monkeypatch.setattr(reading, "HOME", home)
    monkeypatch.setattr(judge, "BUDGET_S", 0.02)
    return home / "gemm_cpu"


def test_every_rung_is_verified_and_timed_beside_the_library(own):
    found = climb("gemm_cpu")
    assert [one.name for one in found.rungs] == ["naive", "loop_order"]
    for one in found.rungs:
        assert (one.accepted, one.shapes, one.reason) == (True, 4, "")
        (time,) = one.times
        assert (time.size, time.flops) == ((48, 48, 48), 2 * 48**3)
        assert time.time_us > 0 < time.of_peer


@pytest.mark.parametrize(
    ("was", "now", "says"),
    [
        ("sum += ", "sum -= ", "at 3x5x7"),
        ("beta != 0.0", "beta != 2.0", "with alpha 1.0 and beta 0.0"),
        ("k < K", "k < K - 1", "at 3x5x7"),
        ("float sum", "floot sum", "floot"),
    ],
)
def test_a_wrong_rung_is_rejected_with_the_shape_and_not_timed(own, was, now, says):
    path = own / "01_naive.cpp"
    path.write_text(path.read_text().replace(was, now))
    (first,) = climb("gemm_cpu", which=["1"]).rungs
    assert not first.accepted
    assert says in first.reason
    assert not first.times


def test_a_ladder_of_the_cpu_does_not_stand_on_a_gpu(own):
    with pytest.raises(UsageError, match="climbs on the CPU"):
        climb("gemm_cpu", device="cuda")


def test_rows_of_rungs_are_shown_together_and_superseded_one_by_one(own, tmp_path):
    folder = str(tmp_path / "evidence")
    record("ladder", Request("cpu", folder, ("gemm_cpu",)))
    found = recorded_climb("gemm_cpu", folder)
    assert [rung.name for rung in found.rungs] == ["naive", "loop_order"]
    assert "| 1 naive |" in tables(folder, ["ladder"])["ladder"]
    assert status(folder).counts == {"current": 2}
    path = own / "01_naive.cpp"
    path.write_text(path.read_text().replace("// Three loops", "// Just three loops"))
    assert status(folder).counts == {"current": 2}
    path = own / "02_loop_order.cpp"
    path.write_text(path.read_text().replace("float held", "double held"))
    assert {one.variant: one.state for one in status(folder).rows} == {"naive": "current", "loop_order": "superseded"}
    assert refresh(Request("cpu", folder)).written == ("gemm_cpu/loop_order",)
    assert status(folder).counts == {"current": 2}


def test_without_the_device_a_rung_is_checked_and_its_record_shown(tmp_path, monkeypatch):
    right = msgspec.structs.replace(recorded_climb("gemm_fp32", "evidence", ["naive"]).rungs[0], times=())
    checked = Climb(ladder="gemm_fp32", machine=predicted_machine("h200"), peer="cuBLAS", rungs=(right,))
    monkeypatch.setattr(climbs, "climb", lambda *_, device, **__: checked if device == "cpu" else None)
    found = checked_beside_recorded("gemm_fp32", ["naive"])
    (rung,) = found.rungs
    assert rung.accepted
    assert rung.times
    assert found.recorded in found.notes[0]
    bare = checked_beside_recorded("gemm_fp32", ["naive"], folder=str(tmp_path))
    assert (bare.recorded, bare.rungs[0].times) == ("", ())


def test_what_was_never_recorded_is_said(tmp_path):
    with pytest.raises(NotFoundError, match="no record of gemm_cpu"):
        recorded_climb("gemm_cpu", str(tmp_path))


def test_a_rung_can_be_read_as_machine_code():
    pytest.importorskip("cuda.core", reason="CUDA C++ needs the extra cuda")
    first, last = with_code(recorded_climb("gemm_fp32", "evidence", ["naive", "shared_tile"])).rungs
    assert (first.code.kernel, first.changes) == ("gemm_naive", ())
    assert "FFMA is" in last.code.reading
    assert "shared bytes" in {change.what for change in last.changes}
    cpu = recorded_climb("gemm_cpu", "evidence", ["naive"])
    assert with_code(cpu) == cpu
