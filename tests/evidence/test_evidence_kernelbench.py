"""Rows of a sample of problems, each by a process of its own; in most tests a small program stands for `kw`."""

import json
import math
import os
import sys
import time
from pathlib import Path

import msgspec
import psutil
import pytest

from kernelwright import commands
from kernelwright.core.bench import Bench, VariantTiming
from kernelwright.core.document import build_document, build_error_document, encode
from kernelwright.core.errors import DeviceError, NotFoundError, ProblemError, TimeLimitError, UsageError
from kernelwright.core.kernelbench import ProblemRun
from kernelwright.core.optimization import BudgetUse, Optimization
from kernelwright.core.verdict import Reason, Verdict
from kernelwright.evidence import (
    command_process,
    fresh_processes,
    instruments,
    kernelbench_runs,
    process_rows,
)
from kernelwright.evidence.fresh_processes import DeviceShare
from kernelwright.evidence.kernelbench import KIND, KernelbenchRows
from kernelwright.evidence.kernelbench_runs import run_problems
from kernelwright.evidence.kinds import MeasureRequest
from kernelwright.evidence.process_rows import measured_sources
from kernelwright.evidence.recording import record_rows, refresh_rows
from kernelwright.evidence.rows import read_rows, write_rows
from kernelwright.evidence.source_digests import PACKAGE
from kernelwright.evidence.status import compute_status
from kernelwright.machines import machine_from_spec

MACHINE = msgspec.structs.replace(machine_from_spec("h200"), name="toy machine", device="cpu", software={"torch": "2"})
CODE = "their_own_code = 1"
REAL = """
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2 + 1


def get_inputs():
    return [torch.rand(64, 256)]


def get_init_inputs():
    return []
"""


def optimization(reason=None):
    verdict = Verdict(
        accepted=reason is None, reason=reason, problem="p", candidate="c", device="cpu", input_sets=1, golden="FP64"
    )
    times = (("candidate", 50.0), ("eager", 100.0), ("torch.compile", 75.0))
    variants = [
        VariantTiming(name=name, time_us=us, low_us=us - 1, high_us=us + 1, floor_us=None, datasheet_bound_us=None)
        for name, us in times
    ]
    return Optimization(
        problem="p",
        machine=MACHINE,
        diagnosis=None,
        regions=(),
        fallbacks=(),
        output_file="o",
        source="class ModelNew: pass\n",
        verdict=verdict,
        bench=None if reason else Bench(problem="p", machine=MACHINE, variants=tuple(variants), comparisons=()),
        engine="kernels",
        options=("channels-last",),
        num_kernels=2,
        budget=BudgetUse(total_s=60.0, spent_s=31.0, left_out=("torch.compile, channels-last",)),
    )


def documents():
    rejection = Reason(code="inaccurate", detail=f"error 2 over limit 1\n{CODE}")
    return {
        "machine": build_document("machine", MACHINE),
        "accepted": build_document("optimize", optimization()),
        "rejected": build_document("optimize", optimization(rejection), status="finding"),
        "error": build_error_document("optimize", ProblemError(f"/home/me/1_c.py raised {'x' * 300}\n{CODE}")),
    }


class Bench75:
    """A folder of problems, a folder of rows, and what the processes of the fake `kw` have left."""

    def __init__(self, root):
        self.problems, self.left, self.folder = root / "KernelBench", root / "left", str(root / "rows" / "evidence")
        self.left.mkdir()
        for name, document in documents().items():
            (self.left / f"{name}.document").write_text(encode(document))

    def add(self, **whats):
        """Problems such as `level1_5_relu="accepted"`."""
        for name, what in whats.items():
            level, _, rest = name.partition("_")
            (self.problems / level).mkdir(parents=True, exist_ok=True)
            (self.problems / level / f"{rest}.py").write_text(f"# {what}\n{CODE}, {what!r}\n")

    def request(self, *names, **options):
        return MeasureRequest("cpu", self.folder, names, str(self.problems), **options)

    def record(self, *names, **options):
        return record_rows("kernelbench", self.request(*names, **options))

    def runs(self):
        return {row.workload: row.decode_result(ProblemRun) for row in read_rows(self.folder)}

    def seen(self):
        """What each process has found since the last call."""
        found = {path.stem: json.loads(path.read_text()) for path in sorted(self.left.glob("*.json"))}
        for path in self.left.glob("*.json"):
            path.unlink()
        return found

    def states(self):
        return {one.workload: one.state for one in compute_status(self.folder).rows}


@pytest.fixture
def bench(tmp_path, monkeypatch):
    monkeypatch.setenv("DOCUMENTS", str(tmp_path / "left"))
    monkeypatch.setattr(fresh_processes, "KW", (sys.executable, str(Path(__file__).with_name("fake_kw.py"))))
    monkeypatch.setattr(KernelbenchRows, "code_digest", lambda self, device: "the compiler")
    return Bench75(tmp_path)


def is_running(pid):
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def test_every_end_is_a_row_with_its_reason(bench, monkeypatch):
    hangs = bench.left / "1_e.json"
    monkeypatch.setattr(command_process, "wall_s", lambda: time.monotonic() + 1000 * hangs.exists())
    bench.add(level1_1_a="accepted", level1_5_b="rejected", level2_1_c="error", level2_97_d="crash", level3_1_e="hang")
    found = bench.record()
    assert found.written == ("level1/1_a", "level1/5_b", "level2/1_c", "level2/97_d", "level3/1_e")
    reasons = ["level1/5_b: inaccurate", "level2/1_c: problem-error", "level2/97_d: crash", "level3/1_e: timeout"]
    assert list(found.failed) == reasons
    runs = bench.runs()
    accepted = runs["level1/1_a"]
    assert (accepted.accepted, accepted.winner, accepted.num_kernels) == (True, "kernels, channels-last", 2)
    assert accepted.left_out == ("torch.compile, channels-last",)
    assert accepted.times["kernelwright"].high_us == 51.0
    assert (accepted.speedup_over("torch.compile", "eager"), accepted.speedup_over("eager")) == (1.5, 2.0)
    assert accepted.wall_s > 0
    assert runs["level1/5_b"].detail == "error 2 over limit 1"
    assert runs["level2/1_c"].detail.startswith("1_c.py raised xxx")
    assert runs["level2/1_c"].detail.endswith("x...")
    assert runs["level2/97_d"].detail == "exit status -6: Fatal error: no such instruction"
    assert (runs["level3/1_e"].detail, runs["level3/1_e"].times) == ("no result within 180 s", {})
    hanging = bench.seen()["1_e"]
    assert not is_running(hanging["pid"])
    assert not is_running(hanging["child"])
    (path,) = Path(bench.folder).glob("*/kernelbench.jsonl")
    assert CODE not in path.read_text()
    assert "class ModelNew" not in path.read_text()


def test_each_process_starts_with_empty_caches_and_a_known_machine(bench, monkeypatch):
    monkeypatch.delenv("KERNELWRIGHT_TESTS_CACHE", raising=False)
    (fresh_processes.cache_dir("machine") / "known.json").write_text("ceilings")
    bench.add(level1_1_a="accepted", level1_5_b="accepted")
    bench.record()
    for one in bench.seen().values():
        assert ".cache/kernelwright/machine/known.json" in one["home"]
        assert all(name.startswith(".cache/kernelwright/machine/") for name in one["home"])
        assert one["caches"] == []
        assert one["arguments"][-5:] == ["--device", "cpu", "--budget", "90", "--json"]
        assert one["cores"] == sorted(os.sched_getaffinity(0))


def test_the_sample_is_every_fourth_and_every_second_in_order_of_numbers(bench):
    names = [f"level{level}_{number}_p" for level in (1, 2, 3) for number in (1, 2, 3, 4, 5, 9, 10, 49, 97, 100)]
    bench.add(**dict.fromkeys([*names, "level4_1_p"], "accepted"))
    chosen = [name.removesuffix("_p") for name in KIND.select_files(bench.request())]
    numbers = {1: (1, 5, 9, 49, 97), 2: (1, 5, 9, 49, 97), 3: (1, 3, 5, 9, 49, 97)}
    assert chosen == [f"level{level}/{number}" for level, all_of in numbers.items() for number in all_of]
    some = KIND.select_files(bench.request("level2/5", "level1/1_p"))
    assert list(some) == ["level1/1_p", "level2/5_p"]
    with pytest.raises(NotFoundError, match="'level1/4'"):
        KIND.select_files(bench.request("level1/4"))
    with pytest.raises(UsageError, match="not in this repository"):
        KIND.select_files(MeasureRequest("cpu", bench.folder))
    with pytest.raises(NotFoundError, match="no problem of the sample"):
        KIND.select_files(MeasureRequest("cpu", bench.folder, suite=str(bench.left)))


def test_the_next_call_continues_with_what_has_no_current_row(bench, monkeypatch):
    bench.add(level1_1_a="accepted", level1_5_b="crash", level1_9_c="accepted")
    bench.record("level1/1")
    assert list(bench.seen()) == ["1_a"]
    bench.record()
    assert list(bench.seen()) == ["5_b", "9_c"]
    assert bench.record().written == ()
    assert bench.record("level1/5", fresh=True).written == ("level1/5_b",)
    bench.add(level1_9_c="rejected")
    assert bench.record().written == ("level1/9_c",)
    assert set(bench.states().values()) == {"current"}
    monkeypatch.setattr(KernelbenchRows, "code_digest", lambda self, device: "a changed compiler")
    assert set(bench.states().values()) == {"superseded"}
    assert len(bench.record().written) == 3


def test_a_newer_instrument_measures_again(bench, monkeypatch):
    bench.add(level1_1_a="accepted")
    bench.record()
    newer = instruments.InstrumentVersion(version=2, date="2026-11-28", change="another clock")
    one = instruments.instruments()["process time"]
    monkeypatch.setitem(
        instruments.instruments(), "process time", msgspec.structs.replace(one, versions=(*one.versions, newer))
    )
    assert bench.states() == {"level1/1_a": "older instrument"}
    assert bench.record().written == ("level1/1_a",)


def test_a_call_ends_at_its_limit_and_keeps_what_is_done(bench, monkeypatch):
    bench.add(level1_1_a="accepted", level1_5_b="hang", level1_9_c="accepted")
    hangs = bench.left / "5_b.json"
    for module in (process_rows, fresh_processes):
        monkeypatch.setattr(module, "wall_s", lambda: 1000.0 * hangs.exists())
    with pytest.raises(TimeLimitError, match="2 problems not measured within 560 s"):
        bench.record(limit_s=560.0)
    assert list(bench.runs()) == ["level1/1_a"]
    assert not is_running(bench.seen()["5_b"]["pid"])
    bench.add(level1_5_b="accepted")
    bench.record()
    assert list(bench.seen()) == ["5_b", "9_c"]


def test_no_problem_starts_with_less_time_than_its_budget(bench):
    bench.add(level1_1_a="accepted")
    with pytest.raises(TimeLimitError, match="1 problem not measured"):
        bench.record(limit_s=5.0)
    assert bench.seen() == {}


def test_an_interrupted_call_leaves_its_rows_and_no_process(bench, monkeypatch):
    bench.add(level1_1_a="accepted", level1_5_b="hang")
    rows = KIND.measure(bench.request())
    write_rows([next(rows)], bench.folder)

    def interrupt(process):
        while not (bench.left / "5_b.json").exists():
            time.sleep(0.01)
        raise KeyboardInterrupt

    monkeypatch.setattr(fresh_processes.CommandProcess, "wait", interrupt)
    with pytest.raises(KeyboardInterrupt):
        next(rows)
    assert list(bench.runs()) == ["level1/1_a"]
    seen = bench.seen()["5_b"]
    assert not is_running(seen["pid"])
    assert not is_running(seen["child"])


def test_one_problem_runs_on_each_gpu(bench):
    bench.add(level1_1_together="together", level1_5_together="together", level1_9_c="accepted")
    core = min(os.sched_getaffinity(0))
    shares = [DeviceShare({"CUDA_VISIBLE_DEVICES": gpu}, {core}) for gpu in ("2", "5")]
    files = KIND.select_files(bench.request())
    found = {one.run.name: one.run.accepted for one in run_problems(files, "cpu", shares, math.inf)}
    assert found == {"level1/1_together": True, "level1/5_together": True, "level1/9_c": True}
    seen = bench.seen()
    assert (seen["1_together"]["gpu"], seen["5_together"]["gpu"]) == ("2", "5")
    assert seen["1_together"]["cores"] == [core]


def test_what_the_machine_lacks_is_reported_before_anything_runs(bench):
    bench.add(level1_1_a="accepted")
    error = DeviceError("torch found no CUDA device on this machine")
    (bench.left / "machine.document").write_text(encode(build_error_document("machine", error)))
    with pytest.raises(DeviceError, match="no CUDA device"):
        bench.record()
    assert bench.seen() == {}


def test_refresh_leaves_rows_whose_problems_are_elsewhere(bench, monkeypatch):
    bench.add(level1_1_a="accepted")
    bench.record()
    monkeypatch.setattr(KernelbenchRows, "code_digest", lambda self, device: "a changed compiler")
    monkeypatch.setattr("kernelwright.evidence.recording.machine", lambda device: MACHINE)
    assert refresh_rows(bench.request()).written == ()
    with pytest.raises(UsageError, match="not in this repository"):
        commands.evidence_refresh("kernelbench", folder=bench.folder)
    found = commands.evidence_status(folder=bench.folder)
    assert found.status == "finding"
    assert found.next == ("measure it with: kw evidence record --kind kernelbench --suite DIR",)


def test_all_that_optimizes_is_a_source_and_instruments_are_not():
    files = {str(path.relative_to(PACKAGE)) for path in measured_sources(KIND.entry_module, KIND.instruments, "cuda")}
    assert {"compiler/pipeline.py", "compiler/selection.py", "problems/loading.py", "core/optimization.py"} <= files
    assert any(name.startswith("compiler/triton/") for name in files)
    assert not [name for name in files if name.startswith(("verification/", "report/", "compiler/cpp/", "machines/"))]


@pytest.mark.slow
def test_a_real_problem_is_optimised(tmp_path, monkeypatch):
    monkeypatch.setattr(kernelbench_runs, "DEFAULT_BUDGET_S", {"cpu": 5.0})
    folder = tmp_path / "KernelBench" / "level1"
    folder.mkdir(parents=True)
    (folder / "1_relu.py").write_text(REAL)
    request = MeasureRequest("cpu", str(tmp_path / "evidence"), suite=str(tmp_path / "KernelBench"))
    assert record_rows("kernelbench", request).failed == ()
    (row,) = read_rows(request.folder)
    run = row.decode_result(ProblemRun)
    assert run.accepted, run
    assert {"kernelwright", "eager"} <= run.times.keys()
    assert compute_status(request.folder).counts == {"current": 1}
