"""Rows of the backend on models; in most tests a small program stands for the process that measures."""

import json
import sys
import time
from pathlib import Path

import msgspec
import pytest

from kernelwright.core.backend_run import BackendRun
from kernelwright.core.document import build_document, encode
from kernelwright.core.errors import NotFoundError, TimeLimitError
from kernelwright.evidence import backend, command_process, fresh_processes, process_rows, tables
from kernelwright.evidence.backend import KIND, BackendRows
from kernelwright.evidence.kinds import MeasureRequest
from kernelwright.evidence.process_rows import measured_sources
from kernelwright.evidence.recording import record_rows, refresh_rows
from kernelwright.evidence.rows import read_rows
from kernelwright.evidence.source_digests import PACKAGE
from kernelwright.evidence.status import compute_status
from kernelwright.machines import machine_from_spec

MACHINE = msgspec.structs.replace(machine_from_spec("h200"), name="toy machine", device="cpu", software={"torch": "2"})
HERE = Path(__file__).parent
SIZES = ("small", "large")
MODEL = """
import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.norm = torch.nn.Linear(16, 16), torch.nn.BatchNorm1d(16)

    def forward(self, x):
        return torch.relu(self.norm(self.linear(x)))


def get_inputs():
    return [torch.randn(8, 16)]
"""


class Models:
    """A repository with models and rows, and what the processes of the fake `backend_process` found."""

    def __init__(self, root):
        self.root, self.left, self.folder = root, root / "left", str(root / "evidence")
        (root / backend.MODELS).mkdir(parents=True)

    def add(self, **whats):
        for name, what in whats.items():
            (self.root / backend.MODELS / f"{name}.py").write_text(f"# {what}\n{MODEL}\nWHAT = {what!r}\n")

    def request(self, *names, **options):
        return MeasureRequest("cpu", self.folder, names, **options)

    def record(self, *names, **options):
        return record_rows("backend", self.request(*names, **options))

    def runs(self):
        return {row.workload: row.decode_result(BackendRun) for row in read_rows(self.folder)}

    def seen(self):
        """What each process since the last call has found."""
        lines = self.left.read_text().splitlines() if self.left.exists() else []
        self.left.unlink(missing_ok=True)
        return [json.loads(line) for line in lines]

    def states(self):
        return {one.workload: one.state for one in compute_status(self.folder).rows}


@pytest.fixture
def models(tmp_path, monkeypatch):
    monkeypatch.setenv("DOCUMENTS", str(tmp_path))
    monkeypatch.setenv("LEFT", str(tmp_path / "left"))
    (tmp_path / "machine.document").write_text(encode(build_document("machine", MACHINE)))
    monkeypatch.setattr(fresh_processes, "KW", (sys.executable, str(HERE / "fake_kw.py")))
    monkeypatch.setattr(backend, "COMMAND", (sys.executable, str(HERE / "fake_backend_process.py")))
    monkeypatch.setattr(BackendRows, "code_digest", lambda self, device: "the backend")
    return Models(tmp_path)


def test_a_tiny_model_is_measured_from_end_to_end(models, monkeypatch):
    monkeypatch.setattr(BackendRows, "code_digest", process_rows.ProcessRows.code_digest)
    models.add(tiny="real")
    assert models.record("tiny/large").failed == ()
    (run,) = models.runs().values()
    assert (run.name, run.accepted) == ("tiny/large", True), run
    assert run.first_call_s.keys() == {"torch.compile", "kernelwright"}
    assert run.times.keys() == {"eager", "torch.compile", "kernelwright"}
    assert all(0 < one.low_us <= one.time_us <= one.high_us for one in run.times.values())
    (row,) = read_rows(models.folder)
    assert row.instruments.keys() == {"host clock", "first call", "paired comparison", "verification"}
    assert models.states() == {"tiny/large": "current"}
    page = models.root / "page.md"
    page.write_text(tables.table_markers("backend")[0])
    tables.write_tables(models.folder, ["backend"], str(page))
    assert "\n1 model: " in page.read_text()
    assert "| tiny/large | " in page.read_text()


def test_each_compiler_has_a_process_with_empty_caches_and_a_known_machine(models):
    (fresh_processes.cache_dir("machine") / "known.json").write_text("ceilings")
    models.add(mlp="measured", lenet="measured")
    assert models.record().written == tuple(f"{name}/{size}" for name in ("lenet", "mlp") for size in SIZES)
    run = models.runs()["mlp/large"]
    assert (run.first_call_s, run.first_call_ratio) == ({"torch.compile": 4.0, "kernelwright": 6.0}, 1.5)
    assert (run.speedup_over("eager"), run.speedup_over("torch.compile")) == (2.0, 1.2)
    seen = models.seen()
    assert [one[:4] for one in seen[:3]] == [
        ["lenet", "small", "cpu", "torch.compile"],
        ["lenet", "small", "cpu", "kernelwright"],
        ["lenet", "large", "cpu", "torch.compile"],
    ]
    for *_, home, caches in seen:
        assert ".cache/kernelwright/machine/known.json" in home
        assert all(name.startswith(".cache/kernelwright/machine/") for name in home)
        assert not {*caches} - {"KERNELWRIGHT_TESTS_CACHE"}, "the tests' own variable for their processes"


def test_every_failure_is_a_row_with_its_reason(models, monkeypatch):
    clock = command_process.wall_s
    monkeypatch.setattr(
        command_process, "wall_s", lambda: clock() + 1000 * (models.left.exists() and "hang" in models.left.read_text())
    )
    models.add(a_wrong="inaccurate", b_ours="crash kernelwright", c_both="crash", d_hang="hang torch.compile")
    names = ("a_wrong/small", "b_ours/small", "c_both/small", "d_hang/small")
    found = models.record(*names)
    reasons = ("inaccurate", "crash", "crash", "timeout")
    assert found.written == names
    assert found.failed == tuple(f"{n}: {r}" for n, r in zip(names, reasons, strict=True))
    runs = models.runs()
    assert [runs[name].detail for name in names] == [
        "kernelwright: error 2 over limit 1",
        "kernelwright: exit status -6: Fatal error: no such instruction",
        "torch.compile: exit status -6: Fatal error: no such instruction",
        "torch.compile: no result within 300 s",
    ]
    assert not any(run.times for run in runs.values())
    assert runs["b_ours/small"].first_call_s == {"torch.compile": 4.0}


def test_the_next_call_continues_with_what_has_no_current_row(models, monkeypatch):
    models.add(a="measured", b="crash")
    models.record("a")
    models.seen()
    models.record()
    assert {one[0] for one in models.seen()} == {"b"}
    assert models.record().written == ()
    assert models.record("a/small", fresh=True).written == ("a/small",)
    models.add(b="measured")
    assert models.record().written == ("b/small", "b/large")
    monkeypatch.setattr(BackendRows, "code_digest", lambda self, device: "a changed backend")
    assert set(models.states().values()) == {"superseded"}
    monkeypatch.setattr("kernelwright.evidence.recording.machine", lambda device: MACHINE)
    assert len(refresh_rows(models.request()).written) == 4
    assert set(models.states().values()) == {"current"}


def test_a_call_ends_at_its_limit_without_half_a_row(models, monkeypatch):
    models.add(a="measured", b="hang kernelwright")
    start_s = time.monotonic()

    def is_hanging():
        return models.left.exists() and '"b", "small", "cpu", "kernelwright"' in models.left.read_text()

    for module in (process_rows, fresh_processes):
        monkeypatch.setattr(module, "wall_s", lambda: start_s + 1000.0 * is_hanging())
    with pytest.raises(TimeLimitError, match="2 models not measured within 560 s"):
        models.record(limit_s=560.0)
    assert list(models.runs()) == ["a/large", "a/small"]


def test_models_are_named_with_or_without_a_size(models):
    with pytest.raises(NotFoundError, match="no models"):
        models.record()
    models.add(a="measured", b="measured")
    assert list(KIND.select_files(models.request("b", "a/large"))) == ["a/large", "b/small", "b/large"]
    with pytest.raises(NotFoundError, match="no 'a/medium' in examples/models"):
        models.record("a/medium")


def test_the_backend_is_a_source_and_instruments_are_not():
    paths = measured_sources(KIND.entry_module, KIND.instruments, "cuda")
    files = {str(path.relative_to(PACKAGE)) for path in paths}
    assert {"compiler/dynamo_backend.py", "compiler/fastest_graph.py", "compiler/regions/partition.py"} <= files
    assert not [name for name in files if name.startswith(("verification/", "report/", "compiler/cpp/", "evidence/"))]


@pytest.mark.slow
def test_a_model_is_compiled_by_both(tmp_path):
    (tmp_path / backend.MODELS).mkdir(parents=True)
    (tmp_path / backend.MODELS / "tiny.py").write_text(MODEL)
    request = MeasureRequest("cpu", str(tmp_path / "evidence"), ("tiny/small",))
    assert record_rows("backend", request).failed == ()
    (row,) = read_rows(request.folder)
    assert row.decode_result(BackendRun).times.keys() == {"eager", "torch.compile", "kernelwright"}
