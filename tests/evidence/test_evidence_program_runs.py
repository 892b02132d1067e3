"""A suite of programs: measured, continued after an end, and built again; with rows that cost no time."""

import sys
from contextlib import nullcontext
from pathlib import Path

import msgspec
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "compiler"))
from first_choice import FirstChoice, KernelsFirst, quick

from kernelwright.compiler import precompile, program_suite
from kernelwright.compiler.backends import backend_for
from kernelwright.compiler.planning import plan_problem
from kernelwright.compiler.program_suite import load_programs as programs_of
from kernelwright.compiler.program_suite import run_program
from kernelwright.compiler.program_variant import EAGER
from kernelwright.compiler.regions.axes import Unsupported
from kernelwright.core.errors import CrashError, NotFoundError
from kernelwright.core.optimization import ProgramSuiteRow
from kernelwright.evidence import program_runs, programs
from kernelwright.evidence.kinds import MeasureRequest
from kernelwright.evidence.rows import read_rows, write_rows
from kernelwright.evidence.status import compute_status
from kernelwright.machines import machine_from_spec

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
        return ProgramSuiteRow(
            name=problem.name, accepted=True, times_us={"kernelwright": 1.0, "copy": 1.0, "eager": 2.0}
        )


@pytest.fixture(autouse=True)
def toy_machine(monkeypatch):
    """A machine that nobody has to measure."""
    toy = msgspec.structs.replace(machine_from_spec("h200"), name="toy machine", device="cpu")
    monkeypatch.setattr(program_runs, "measured_machine", lambda device: toy)
    return toy


@pytest.fixture
def suite(tmp_path, monkeypatch):
    # The sources of the compiler count in every row; here they would only cost time.
    monkeypatch.setattr(programs, "_codegen_digest", lambda device: "compiler")
    made(tmp_path)
    folder = str(tmp_path / "evidence")

    def measure(*names, fails=(), run=None, **options):
        run = run or Runs(fails)
        request = MeasureRequest("cpu", folder, names, **options)
        with pytest.raises(KeyboardInterrupt) if fails else nullcontext():
            for row in program_runs.measure_programs(
                request, programs.build_program, programs.KIND.sources_digest, run=run, prepare=False
            ):
                write_rows([row], folder)
        return getattr(run, "done", None), {
            row.workload: row.decode_result(ProgramSuiteRow) for row in read_rows(folder)
        }

    return measure, folder, tmp_path


def states(folder):
    return {one.workload: one.state for one in compute_status(folder).rows}


BOTH = ["suite/toy:double", "suite/toy:halve"]


def test_a_measured_suite_is_current_and_not_measured_again_unless_fresh(suite):
    measure, folder, _ = suite
    done, found = measure()
    assert done == ["toy:double", "toy:halve"]
    assert list(found) == BOTH
    assert states(folder) == dict.fromkeys(BOTH, "current")
    assert measure()[0] == []
    assert measure("toy:halve", fresh=True)[0] == ["toy:halve"]
    assert measure("toy", fresh=True)[0] == ["toy:double", "toy:halve"]


def test_another_program_supersedes_its_own_row_alone(suite):
    measure, folder, tmp_path = suite
    measure()
    made(tmp_path, body="return x / 3")
    assert states(folder) == {BOTH[0]: "current", BOTH[1]: "superseded"}
    compute_status(folder, update=True)
    assert measure()[0] == ["toy:halve"]
    assert set(states(folder).values()) == {"current"}


def test_a_folder_of_problem_files_is_a_suite_of_its_own(suite):
    measure, folder, tmp_path = suite
    home = tmp_path / "Problems of Others"
    home.mkdir()
    (home / "1_relu.py").write_text(
        "import torch\n\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return x.relu()\n\n\n"
        "def get_inputs():\n    return [torch.ones(8)]\n"
    )
    done, found = measure(suite=str(home))
    assert (done, list(found)) == (["1_relu"], ["problems-of-others/1_relu"])
    made(tmp_path, body="return x / 3")
    assert states(folder) == {"problems-of-others/1_relu": "current"}
    assert measure()[0] == ["toy:double", "toy:halve"], "our own has its rows beside it"


def test_other_software_measures_all_rows_again(suite, toy_machine, monkeypatch):
    measure, _, _ = suite
    measure()
    other = msgspec.structs.replace(toy_machine, software={"torch": "another"})
    monkeypatch.setattr(program_runs, "measured_machine", lambda device: other)
    assert len(measure()[0]) == 2


def test_a_run_that_was_ended_goes_on_after_what_ended_it(suite):
    measure, _, _ = suite
    _, found = measure(fails=["toy:double"])
    assert [(one.accepted, one.reason) for one in found.values()] == [(False, program_runs.INTERRUPTED)]
    assert measure(fails=["toy:double"])[0] == ["toy:halve", "toy:double"]
    done, found = measure()
    assert done == []
    assert [one.reason for one in found.values()] == [program_runs.INTERRUPTED_TWICE, ""]


def test_an_unknown_program_is_refused_with_what_is_meant(suite, tmp_path):
    measure, _, _ = suite
    with pytest.raises(NotFoundError, match="'halved'") as caught:
        measure("halved")
    assert "toy:halve" in caught.value.next
    request = MeasureRequest("cpu", str(tmp_path / "elsewhere" / "evidence"))
    with pytest.raises(NotFoundError, match="no suite"):
        list(program_runs.measure_programs(request, programs.build_program, programs.KIND.sources_digest))


class OneKernel(Runs):
    """A run whose program is timed with one kernel."""

    def __call__(self, problem):
        return msgspec.structs.replace(super().__call__(problem), winners=("region_0: vector_axis i0, parallel True",))


def test_timed_code_that_cannot_be_built_is_not_accepted(suite, monkeypatch):
    def fail(*_):
        raise Unsupported("rows of 7 dimensions")

    measure, *_ = suite
    assert measure("toy:double", run=OneKernel())[1][BOTH[0]].accepted
    monkeypatch.setattr(programs, "_generate_kernels", fail)
    found = measure("toy:halve", run=OneKernel())[1][BOTH[1]]
    assert (found.accepted, found.times_us) == (False, {})
    assert found.reason == "timed, but its code cannot be built: Unsupported: rows of 7 dimensions"


def test_rows_whose_code_cannot_be_built_are_unverified_with_the_reason(suite, monkeypatch):
    def fail(*_):
        raise Unsupported("rows of 7 dimensions")

    measure, folder, _ = suite
    measure("toy:double", run=OneKernel())
    monkeypatch.setattr(programs, "_codegen_digest", lambda device: "another compiler")
    assert states(folder) == {BOTH[0]: "current"}
    monkeypatch.setattr(programs, "_generate_kernels", fail)
    (row,) = compute_status(folder).rows
    assert (row.state, row.reason) == ("unverified", "its code cannot be built: Unsupported: rows of 7 dimensions")


def test_a_program_in_other_regions_supersedes_its_row(suite, monkeypatch):
    def partition_differently(*_):
        raise NotFoundError("no region_0 in the current plan")

    measure, folder, _ = suite
    measure("toy:double", run=OneKernel())
    monkeypatch.setattr(programs, "_codegen_digest", lambda device: "another compiler")
    monkeypatch.setattr(programs, "_generate_kernels", partition_differently)
    assert states(folder) == {BOTH[0]: "superseded"}


def test_a_lost_device_ends_the_run_after_the_row(suite, monkeypatch):
    measure, folder, _ = suite
    with monkeypatch.context() as lost, pytest.raises(CrashError, match="toy:double; the next call goes on") as caught:
        lost.setattr(program_runs, "is_device_alive", lambda device: False)
        measure()
    assert caught.value.next == "kw evidence record --kind optimize --device cuda"
    assert read_rows(folder)[0].decode_result(ProgramSuiteRow).accepted
    assert measure()[0] == ["toy:halve"]


@pytest.fixture(scope="module", autouse=True)
def compiled_quickly():
    with quick():
        yield


def cheaply(problem):
    tuner = FirstChoice()
    return run_program(
        problem, "cpu", tuner.machine, use_torch_compile=False, num_input_sets=1, budget_s=0.01, tuner=tuner
    )


def test_one_broken_program_leaves_a_row_with_its_reason(suite):
    measure, _, tmp_path = suite
    made(tmp_path, "broken", 'raise ValueError("out of luck")')
    good, bad = reversed(measure(run=cheaply)[1].values())
    assert good.accepted, good.reason
    assert good.times_us.keys() == {"kernelwright", "eager", "copy"}
    assert good.winners == ("region_0: first, it is the first",)
    assert good.compulsory_bytes == 2 * 64 * 32 * 4
    assert (bad.accepted, bad.times_us) == (False, {})
    assert "out of luck" in bad.reason


class TorchFirst(KernelsFirst):
    """Stands where a ProgramSelector stands: the original program is the fastest variant."""

    def __init__(self, session, use_torch_compile):
        super().__init__(session)

    def select(self):
        return [EAGER], None


@pytest.mark.parametrize("keep", [False, True], ids=["no kernel", "the whole"])
def test_a_program_that_runs_as_it_was_is_eager_and_not_timed_against_itself(tmp_path, monkeypatch, keep):
    made(tmp_path)
    monkeypatch.setattr(program_suite, "ProgramSelector", TorchFirst)
    tuner, problem = FirstChoice(keep), next(programs_of(str(tmp_path / "examples" / "suite"), "cpu"))
    row = run_program(
        problem, "cpu", tuner.machine, use_torch_compile=False, num_input_sets=1, budget_s=0.01, tuner=tuner
    )
    assert row.accepted, row.reason
    assert row.speedup_over("eager") == 1


def test_a_fault_that_is_nobodys_error_is_a_row_too(tmp_path, monkeypatch):
    def full(*_):
        raise torch.OutOfMemoryError("out of memory")

    made(tmp_path)
    monkeypatch.setattr("kernelwright.compiler.program_suite.optimize_problem", full)
    row = cheaply(next(programs_of(str(tmp_path / "examples" / "suite"), "cpu")))
    assert (row.accepted, row.reason) == (False, "OutOfMemoryError: out of memory")


def test_every_choice_every_region_and_the_program_are_compiled_beforehand(tmp_path, monkeypatch):
    file, read = made(tmp_path), []
    monkeypatch.setenv("KERNELWRIGHT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(precompile, "_compile", lambda program, *_: read.append(program))
    problem = next(programs_of(str(file.parent), "cpu"))
    (part,) = plan_problem(problem, "cpu").regions
    precompile.precompile_problem(problem, "cpu")
    assert (
        len(list((tmp_path / "cache" / "owned").glob("*.so")))
        == len(backend_for("cpu").generate_configs(part.region))
        > 1
    )
    assert len(read) == 2
    assert read[1] is problem.program


@pytest.mark.exhaustive
def test_programs_are_compiled_in_processes_that_may_die(tmp_path, monkeypatch):
    file = made(tmp_path, "deadly", "os._exit(3)")
    monkeypatch.setenv("KERNELWRIGHT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    precompile.precompile_suite(str(file.parent), ["toy:deadly", "toy:double"], "cpu")
    assert list((tmp_path / "cache" / "owned").glob("*.so"))
    assert list((tmp_path / "inductor").rglob("*.so"))
