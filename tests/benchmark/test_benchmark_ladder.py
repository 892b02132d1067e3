"""A climb verifies every rung before it times it, and a record of it says that it is one."""

import shutil

import msgspec
import pytest

from kernelwright.benchmark import ladder as judge
from kernelwright.benchmark.ladder import run_ladder
from kernelwright.commands.ladder_machine_code import add_machine_code
from kernelwright.core.errors import NotFoundError, UsageError
from kernelwright.core.ladder import LadderRun
from kernelwright.evidence import ladder_runs
from kernelwright.evidence.kinds import MeasureRequest
from kernelwright.evidence.ladder_runs import (
    check_with_recorded_times,
    load_recorded_run,
    run_or_load_ladder,
)
from kernelwright.evidence.recording import record_rows, refresh_rows
from kernelwright.evidence.status import compute_status
from kernelwright.evidence.tables import render_tables
from kernelwright.ladders import rungs
from kernelwright.machines import machine_from_spec


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A copy of gemm_cpu's first rungs, on few shapes, for a test to change."""
    home = tmp_path / "ladders"
    shutil.copytree(rungs.LADDERS_DIR / "gemm_cpu", home / "gemm_cpu", ignore=shutil.ignore_patterns("0[3-9]*"))
    task = home / "gemm_cpu" / "gemm_cpu.py"
    task.write_text(
        task.read_text() + "\n\nSHAPES = ((3, 5, 7), (0, 2, 1), (2, 3, 0), (33, 17, 65))\nSIZES = ((48,) * 3,)\n"
    )
    monkeypatch.setattr(rungs, "LADDERS_DIR", home)
    monkeypatch.setattr(judge, "BUDGET_S", 0.02)
    return home / "gemm_cpu"


def test_every_rung_is_verified_and_timed_beside_the_library(own):
    found = run_ladder("gemm_cpu")
    assert [one.name for one in found.rungs] == ["naive", "loop_order"]
    for one in found.rungs:
        assert (one.accepted, one.num_shapes, one.reason) == (True, 4, "")
        (time,) = one.times
        assert (time.size, time.flops) == ((48, 48, 48), 2 * 48**3)
        assert time.time_us > 0 < time.fraction_of_baseline


@pytest.mark.parametrize(
    ("was", "now", "says"),
    [
        ("sum += ", "sum -= ", "at 3x5x7"),
        ("beta != 0.0", "beta != 2.0", "with 1.0, 0.0"),
        ("k < K", "k < K - 1", "at 3x5x7"),
        ("float sum", "floot sum", "floot"),
    ],
)
def test_a_wrong_rung_is_rejected_with_the_shape_and_not_timed(own, was, now, says):
    path = own / "01_naive.cpp"
    path.write_text(path.read_text().replace(was, now))
    (first,) = run_ladder("gemm_cpu", rung_names=["1"]).rungs
    assert not first.accepted
    assert says in first.reason
    assert not first.times


def test_a_ladder_of_the_cpu_does_not_stand_on_a_gpu(own):
    with pytest.raises(UsageError, match="runs on the CPU"):
        run_ladder("gemm_cpu", device="cuda")


def test_rows_of_rungs_are_shown_together_and_superseded_one_by_one(own, tmp_path):
    folder = str(tmp_path / "evidence")
    record_rows("ladder", MeasureRequest("cpu", folder, ("gemm_cpu",)))
    found = load_recorded_run("gemm_cpu", folder)
    assert [rung.name for rung in found.rungs] == ["naive", "loop_order"]
    assert "| 1 naive |" in render_tables(folder, ["ladder"])["ladder"]
    assert compute_status(folder).counts == {"current": 2}
    path = own / "01_naive.cpp"
    path.write_text(path.read_text().replace("// Three loops", "// Just three loops"))
    assert compute_status(folder).counts == {"current": 2}
    path = own / "02_loop_order.cpp"
    path.write_text(path.read_text().replace("float held", "double held"))
    assert {one.variant: one.state for one in compute_status(folder).rows} == {
        "naive": "current",
        "loop_order": "superseded",
    }
    assert refresh_rows(MeasureRequest("cpu", folder)).written == ("gemm_cpu/loop_order",)
    assert compute_status(folder).counts == {"current": 2}


def test_without_the_device_a_rung_is_checked_and_its_record_shown(tmp_path, monkeypatch):
    right = msgspec.structs.replace(load_recorded_run("gemm_fp32", "evidence", ["naive"]).rungs[0], times=())
    checked = LadderRun(ladder="gemm_fp32", machine=machine_from_spec("h200"), baseline="cuBLAS", rungs=(right,))
    monkeypatch.setattr(ladder_runs, "run_ladder", lambda *_, device, **__: checked if device == "cpu" else None)
    found = check_with_recorded_times("gemm_fp32", ["naive"])
    (rung,) = found.rungs
    assert rung.accepted
    assert rung.times
    assert found.recorded_date in found.notes[0]
    bare = check_with_recorded_times("gemm_fp32", ["naive"], folder=str(tmp_path))
    assert (bare.recorded_date, bare.rungs[0].times) == ("", ())


@pytest.mark.parametrize(
    ("capability", "where"), [(None, "cpu"), ((8, 9), "cpu"), ((10, 0), "cpu"), ((9, 0), "")], ids=str
)
def test_a_ladder_is_emulated_where_no_gpu_can_run_it(monkeypatch, capability, where):
    devices = []
    machine = machine_from_spec("h200")

    def run(name, *, device, **_):
        devices.append(device)
        return LadderRun(ladder=name, machine=machine, baseline="cuBLAS", rungs=())

    monkeypatch.setattr(ladder_runs, "run_ladder", run)
    monkeypatch.setattr("torch.cuda.is_available", lambda: capability is not None)
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda: capability)
    run_or_load_ladder("gemm_hopper")
    assert devices == [where]


def test_what_was_never_recorded_is_said(tmp_path):
    with pytest.raises(NotFoundError, match="no record of gemm_cpu"):
        load_recorded_run("gemm_cpu", str(tmp_path))


def test_a_rung_can_be_read_as_machine_code():
    pytest.importorskip("cuda.core", reason="CUDA C++ needs the extra cuda")
    first, last = add_machine_code(load_recorded_run("gemm_fp32", "evidence", ["naive", "shared_tile"])).rungs
    assert (first.machine_code.kernel, first.code_changes) == ("gemm_naive", ())
    assert "FFMA is" in last.machine_code.summary
    assert "shared bytes" in {change.metric for change in last.code_changes}
    cpu = load_recorded_run("gemm_cpu", "evidence", ["naive"])
    assert add_machine_code(cpu) == cpu
