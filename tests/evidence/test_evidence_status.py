"""A row is current as long as the same code runs, measured by the same instruments."""

import shutil
from pathlib import Path

import msgspec
import pytest

from kernelwright.core.errors import NotFoundError, UsageError
from kernelwright.core.evidence import EvidenceRow, encode_result
from kernelwright.core.layout import FragmentOutcome
from kernelwright.evidence import instruments, kernels, layouts
from kernelwright.evidence.kinds import KIND_MODULES, BuildResult, get_kind
from kernelwright.evidence.rows import read_rows, write_rows
from kernelwright.evidence.status import compute_status

RESULT = layouts.LayoutResult(
    fragments=(FragmentOutcome(instruction="mma", operand="A", layout="4:1", elements=4, mismatches=0),)
)


def row(**changes):
    fields = {
        "kind": "layout",
        "workload": "fragments",
        "machine": "toy machine",
        "device": "cuda",
        "problem": "p",
        "artifact": "a",
        "sources": "s",
        "instruments": {"layout probes": 1},
        "environment": {},
        "date": "2026-11-20",
        "result": encode_result(RESULT),
    }
    return EvidenceRow(**(fields | changes))


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """A folder of rows, and what today's sources and code are said to be."""
    today = {"sources": "s", "built": BuildResult("p", "a")}
    monkeypatch.setattr(layouts.LayoutRows, "sources_digest", lambda self, row, root: today["sources"])
    monkeypatch.setattr(layouts.LayoutRows, "build", lambda self, rows, root: [today["built"]] * len(rows))
    write_rows([row()], str(tmp_path))
    return str(tmp_path), today


def state(folder, **options):
    (found,) = compute_status(folder, **options).rows
    return found.state


def test_rows_are_read_as_they_were_written(tmp_path):
    rows = [row(), row(workload="accesses"), row(workload="fragments", machine="Other (R)")]
    write_rows(rows, str(tmp_path))
    write_rows([row(date="2026-11-21")], str(tmp_path))
    assert {path.parent.name for path in tmp_path.glob("*/layout.jsonl")} == {"toy-machine", "other-r"}
    found = read_rows(str(tmp_path))
    assert sorted(one.key for one in found) == sorted(one.key for one in rows)
    assert {one.date for one in found if one.machine == "toy machine"} == {"2026-11-20", "2026-11-21"}
    assert found[0].decode_result(layouts.LayoutResult) == RESULT


def test_other_sources_that_make_the_same_code_leave_a_row_current(toy):
    folder, today = toy
    today["sources"] = "renamed"
    assert state(folder) == "current"
    assert read_rows(folder)[0].sources == "s", "status alone writes nothing"
    assert compute_status(folder, update=True).updated == 1
    assert read_rows(folder)[0].sources == "renamed"
    assert compute_status(folder, update=True).updated == 0


@pytest.mark.parametrize(
    ("built", "expected"),
    [
        (BuildResult("p", "other"), "superseded"),
        (BuildResult("other", "a"), "superseded"),
        (BuildResult("p", ""), "superseded"),
        (BuildResult("p", "a", "another compiler"), "unverified"),
        (BuildResult(failure="no compiler"), "unverified"),
    ],
)
def test_other_code_supersedes_a_row_and_what_cannot_be_built_is_said(toy, built, expected):
    folder, today = toy
    today |= {"sources": "changed", "built": built}
    assert state(folder, update=True) == expected
    assert read_rows(folder)[0].sources == "s"


def test_a_newer_instrument_marks_the_rows_that_used_it(toy, monkeypatch):
    folder, _ = toy
    write_rows([row(workload="accesses", instruments={"counters": 1})], folder)
    known = instruments.instruments()
    newer = instruments.InstrumentVersion(version=2, date="2026-11-27", change="another probe")
    one = msgspec.structs.replace(known["layout probes"], versions=(*known["layout probes"].versions, newer))
    monkeypatch.setitem(known, "layout probes", one)
    found = {one.workload: one for one in compute_status(folder).rows}
    assert (found["fragments"].state, found["accesses"].state) == ("older instrument", "current")
    assert "another probe" in found["fragments"].reason


def test_an_empty_folder_is_no_proof_and_a_broken_line_is_named(tmp_path):
    with pytest.raises(NotFoundError, match="no rows"):
        compute_status(str(tmp_path))
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "layout.jsonl").write_text("{}\n")
    with pytest.raises(UsageError, match=r"layout\.jsonl"):
        compute_status(str(tmp_path))
    with pytest.raises(UsageError, match="no rows of kind 'sundial'"):
        get_kind("sundial")


@pytest.mark.parametrize("name", KIND_MODULES)
def test_every_kind_can_read_its_own_rows(name):
    kind = get_kind(name)
    for one in read_rows("evidence", name):
        one.decode_result(kind.result_type)


def test_changed_arithmetic_changes_exactly_the_code_of_its_kernel(tmp_path, monkeypatch):
    """In one copy of a kernel's source names of variables change, in another one constant of softmax."""
    pytest.importorskip("triton")
    from kernelwright.evidence import artifact_digest
    from kernelwright.kernels.rows.planning import LaunchPlan, TritonLaunch

    text = (
        "import triton\nimport triton.language as tl\n\n\n"
        "@triton.jit\ndef scale(x_ptr, out_ptr, N: tl.constexpr):\n"
        "    offsets = tl.arange(0, N)\n    value = tl.load(x_ptr + offsets)\n"
        "    tl.store(out_ptr + offsets, value * 2.0)\n\n\n"
        "@triton.jit\ndef shift(x_ptr, out_ptr, N: tl.constexpr):\n"
        "    offsets = tl.arange(0, N)\n    value = tl.load(x_ptr + offsets)\n"
        "    tl.store(out_ptr + offsets, value + 1.0)\n"
    )
    renamed = text.replace("value", "loaded").replace("offsets", "offs")
    changed = text.replace("value * 2.0", "value * 3.0")

    def codes(name, source):
        import torch

        from kernelwright.problems.importing import import_file

        path = tmp_path / f"{name}.py"
        path.write_text(source)
        module = import_file(path, UsageError)
        plans = [LaunchPlan(artifact_digest.HOPPER) for _ in range(2)]
        for plan, kernel in zip(plans, (module.scale, module.shift), strict=True):
            plan.launches.append(TritonLaunch(kernel, (torch.empty(64), torch.empty(64)), {"N": 64, "num_warps": 1}))
        return [artifact_digest.artifact_digest(plan) for plan in plans]

    before = codes("before", text)
    assert codes("renamed", renamed) == before
    assert [a == b for a, b in zip(codes("changed", changed), before, strict=True)] == [False, True]


def test_a_kernel_of_the_library_is_built_without_a_gpu():
    pytest.importorskip("triton")
    pytest.importorskip("cuda.bindings.nvrtc")
    known = kernels._workloads_by_id("softmax")
    rows = [one for one in read_rows("evidence", "kernel") if one.workload in list(known)[:2]]
    for one, code in zip(rows, kernels.KIND.build(rows, Path()), strict=True):
        assert (code.failure, code.problem) == ("", one.problem)
    (other,) = kernels.KIND.build([msgspec.structs.replace(rows[0], machine="NVIDIA A100-SXM4-80GB")], Path())
    assert "A100" in other.failure, "no code is planned for a GPU that is not known"
    gone = row(kind="kernel", workload="sundial/forward/1x1", result=encode_result({}))
    assert kernels.KIND.build([gone], Path())[0].problem == "missing"


def test_rungs_hang_on_their_own_sources_alone(tmp_path, monkeypatch):
    from kernelwright.evidence import ladders
    from kernelwright.ladders import rungs

    home = tmp_path / "ladders"
    shutil.copytree(rungs.LADDERS_DIR / "gemm_cpu", home / "gemm_cpu")
    monkeypatch.setattr(rungs, "LADDERS_DIR", home)
    names = ("naive", "loop_order")

    def codes():
        return [ladders._build_rung("gemm_cpu", name).artifact for name in names]

    before = codes()
    path = home / "gemm_cpu" / "02_loop_order.cpp"
    path.write_text("// A remark.\n" + path.read_text())
    assert codes() == before
    path.write_text(path.read_text().replace("float held", "double held"))
    assert [a == b for a, b in zip(codes(), before, strict=True)] == [True, False]
