"""The suite as a record: recorded, continued, held against its sources; with rows that cost no time."""

import sys
from contextlib import nullcontext
from pathlib import Path

import msgspec
import pytest
import torch
from tiers import fast_first

sys.path.insert(0, str(Path(__file__).parent))
from first_choice import FirstChoice, quick

from kernelwright.core.errors import CrashError, NotFoundError
from kernelwright.core.optimization import SuiteRow
from kernelwright.judge.evidence import check, load
from kernelwright.machine import predicted_machine
from kernelwright.optimize import evidence, preparation
from kernelwright.optimize.generators import generator_for
from kernelwright.optimize.program import plan_of
from kernelwright.optimize.suite import programs, run_one

PROGRAMS = """
import os
import torch

GPU_SCALE = {{"double": 4, "{other}": 4}}


def double(x):
    return x * 2 + 1


def double_inputs(scale=1):
    return [torch.ones(64 * scale, 32)]


def {other}(x):
    {body}


def {other}_inputs(scale=1):
    return [torch.ones(8 * scale, 32)]
"""


def made(folder, other="halve", body="return x / 2"):
    (folder / "examples" / "suite").mkdir(parents=True, exist_ok=True)
    file = folder / "examples" / "suite" / "toy.py"
    file.write_text(PROGRAMS.format(other=other, body=body))
    return file


class Runs:
    """Stands where `run_one` stands; `fails` says in which program the run ends."""

    def __init__(self, fails=()):
        self.done, self.fails = [], fails

    def __call__(self, problem):
        self.done.append(problem.name)
        if problem.name in self.fails:
            raise KeyboardInterrupt
        return SuiteRow(name=problem.name, accepted=True, times_us={"kernelwright": 1.0, "copy": 1.0, "eager": 2.0})


@pytest.fixture(autouse=True)
def toy_machine(monkeypatch):
    """A machine that nobody has to measure."""
    toy = msgspec.structs.replace(predicted_machine("h200"), name="toy machine", device="cpu")
    monkeypatch.setattr(evidence, "machine_here", lambda device: toy)
    return toy


@pytest.fixture
def suite(tmp_path, monkeypatch):
    # The whole closure is held against its names in tests/judge; here it would only cost time.
    monkeypatch.setattr("kernelwright.judge.evidence.SUITE_ROOTS", ("kernelwright.core.units",))
    made(tmp_path)
    folder = str(tmp_path / "evidence")

    def record(*names, fails=(), **options):
        runs, found = Runs(fails), None
        with pytest.raises(KeyboardInterrupt) if fails else nullcontext():
            found = evidence.record(names, device="cpu", folder=folder, prepare=False, run=runs, **options)
        return runs.done, found

    return record, folder, tmp_path


def kept(folder):
    (path,) = (folder / "evidence").glob("*/optimize/suite.json")
    return load(path)


def test_a_recorded_suite_is_current_and_complete(suite):
    record, folder, tmp_path = suite
    done, found = record()
    assert done == [row.name for row in found.rows] == ["toy:double", "toy:halve"]
    assert (found.state, found.device, kept(tmp_path)) == ("measured", "cpu", found)
    assert {"examples/suite/toy.py", "kernelwright/core/units.py"} <= found.sources.keys()
    report = check(folder)
    assert (len(report.records), report.stale, report.pending) == (1, (), ())


@pytest.mark.parametrize("where", fast_first(1, ["changed", "new"]))
def test_another_program_makes_the_record_stale_and_all_is_done_again(suite, where):
    record, folder, tmp_path = suite
    record()
    if where == "changed":
        made(tmp_path, body="return x / 3")
    else:
        (tmp_path / "examples" / "suite" / "more.py").write_text("GPU_SCALE = {}\n")
    (stale,) = check(folder).stale
    assert f"examples/suite/{'toy' if where == 'changed' else 'more'}.py" in stale
    assert record()[0] == ["toy:double", "toy:halve"]
    assert not check(folder).stale


def test_what_is_done_is_not_done_again_unless_fresh(suite):
    record, _, _ = suite
    record()
    assert record()[0] == []
    done, found = record("toy:halve", fresh=True)
    assert (done, len(found.rows)) == (["toy:halve"], 2)
    assert record("toy", fresh=True)[0] == ["toy:double", "toy:halve"]


def test_a_folder_of_problem_files_is_a_suite_of_its_own(suite):
    record, folder, tmp_path = suite
    home = tmp_path / "Problems of Others"
    home.mkdir()
    (home / "1_relu.py").write_text(
        "import torch\n\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return x.relu()\n\n\n"
        "def get_inputs():\n    return [torch.ones(8)]\n"
    )
    done, found = record(suite=str(home))
    assert (done, found.name) == (["1_relu"], "problems-of-others")
    assert not any("toy" in name or "relu" in name for name in found.sources)
    made(tmp_path, body="return x / 3")
    report = check(folder)
    assert [Path(path).name for path in report.records] == ["problems-of-others.json"]
    assert not report.stale
    assert record()[0] == ["toy:double", "toy:halve"], "our own has its record beside it"


@pytest.mark.slow
def test_other_software_makes_all_rows_again(suite, toy_machine, monkeypatch):
    record, _, _ = suite
    record()
    other = msgspec.structs.replace(toy_machine, software={"torch": "another"})
    monkeypatch.setattr(evidence, "machine_here", lambda device: other)
    assert len(record()[0]) == 2


def test_a_run_that_was_ended_goes_on_behind_what_ended_it(suite):
    record, folder, tmp_path = suite
    record(fails=["toy:double"])
    (row,) = kept(tmp_path).rows
    assert (row.accepted, row.reason) == (False, evidence.ENDED)
    assert len(check(folder).pending) == 1
    assert record(fails=["toy:double"])[0] == ["toy:halve", "toy:double"]
    done, found = record()
    assert (done, found.state) == ([], "measured")
    assert [row.reason for row in found.rows] == [evidence.ENDED_AGAIN, ""]


def test_some_programs_are_a_pending_record(suite):
    record, folder, _ = suite
    done, found = record("toy:halve")
    assert (done, found.state) == (["toy:halve"], "pending")
    assert "1 of 2 programs" in found.notes[0]
    assert len(check(folder).pending) == 1
    assert record()[0] == ["toy:double"]


def test_an_unknown_program_is_refused_with_what_is_meant(suite, tmp_path):
    record, _, _ = suite
    with pytest.raises(NotFoundError, match="'halved'") as caught:
        record("halved")
    assert "toy:halve" in caught.value.next
    with pytest.raises(NotFoundError, match="no suite"):
        evidence.record([], device="cpu", folder=str(tmp_path / "elsewhere" / "evidence"))


def test_a_lost_device_ends_the_run_behind_the_row(suite, monkeypatch):
    record, _, tmp_path = suite
    with monkeypatch.context() as lost, pytest.raises(CrashError, match="toy:double; the next call goes on") as caught:
        lost.setattr(evidence, "alive", lambda device: False)
        record()
    assert caught.value.next == "kw evidence record --kind optimize --device cuda"
    assert kept(tmp_path).rows[0].accepted
    assert record()[0] == ["toy:halve"]


@pytest.fixture(scope="module", autouse=True)
def compiled_quickly():
    with quick():
        yield


def cheaply(problem):
    tuner = FirstChoice()
    return run_one(problem, "cpu", tuner.machine, compile=False, sets=1, budget_s=0.01, tuner=tuner)


def test_one_broken_program_leaves_a_row_with_its_reason(tmp_path):
    made(tmp_path, "broken", 'raise ValueError("out of luck")')
    options = {"device": "cpu", "folder": str(tmp_path / "evidence"), "prepare": False}
    found = evidence.record([], **options, run=cheaply)
    good, bad = found.rows
    assert good.accepted, good.reason
    assert good.times_us.keys() == {"kernelwright", "eager", "copy"}
    assert good.winners == ("region_0: first, it is the first",)
    assert good.compulsory_bytes == 2 * 64 * 32 * 4
    assert (bad.accepted, bad.times_us) == (False, {})
    assert "out of luck" in bad.reason
    assert found.state == "measured"


@pytest.mark.parametrize("better", [None, ("torch", "1.10x faster")], ids=["no kernel", "the whole"])
def test_a_program_that_runs_as_it_was_is_eager_and_not_timed_against_itself(tmp_path, better):
    made(tmp_path)
    tuner, problem = (
        FirstChoice(keep=better is not None, better=better),
        next(programs(str(tmp_path / "examples" / "suite"), "cpu")),
    )
    row = run_one(problem, "cpu", tuner.machine, compile=False, sets=1, budget_s=0.01, tuner=tuner)
    assert row.accepted, row.reason
    assert row.ratio("eager") == 1


def test_a_fault_that_is_nobodys_error_is_a_row_too(tmp_path, monkeypatch):
    def full(*_):
        raise torch.OutOfMemoryError("no room")

    made(tmp_path)
    monkeypatch.setattr("kernelwright.optimize.suite.with_kernels", full)
    row = cheaply(next(programs(str(tmp_path / "examples" / "suite"), "cpu")))
    assert (row.accepted, row.reason) == (False, "OutOfMemoryError: no room")


def test_every_choice_every_region_and_the_program_are_compiled_beforehand(tmp_path, monkeypatch):
    file, read = made(tmp_path), []
    monkeypatch.setenv("KERNELWRIGHT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(preparation, "_compile", lambda program, *_: read.append(program))
    problem = next(programs(str(file.parent), "cpu"))
    (part,) = plan_of(problem, "cpu").parts
    preparation.prepare(problem, "cpu")
    assert len(list((tmp_path / "cache" / "owned").glob("*.so"))) == len(generator_for("cpu").choices(part.region)) > 1
    assert len(read) == 2
    assert read[1] is problem.program


@pytest.mark.exhaustive
def test_programs_are_compiled_in_processes_that_may_die(tmp_path, monkeypatch):
    file = made(tmp_path, "deadly", "os._exit(3)")
    monkeypatch.setenv("KERNELWRIGHT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    preparation.prepare_all(str(file.parent), ["toy:deadly", "toy:double"], "cpu")
    assert list((tmp_path / "cache" / "owned").glob("*.so"))
    assert list((tmp_path / "inductor").rglob("*.so"))
