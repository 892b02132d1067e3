from pathlib import Path

import pytest

from kernelwright.core.document import document, encode
from kernelwright.core.errors import NotFoundError
from kernelwright.core.optimization import SuiteRecord, SuiteRow
from kernelwright.core.records import EvidenceRecord
from kernelwright.judge.evidence import (
    MARK,
    PAGES,
    check,
    kernel_summary,
    kernels_page,
    ladder_summary,
    ladders_page,
    load,
    marks_of,
    regimes_table,
    sources_of,
    suite_page,
    suite_summary,
    write_table,
)
from kernelwright.judge.sources import PACKAGE, import_closure, source_hash

ROOT = Path(__file__).resolve().parents[2]
PINNED = "dc4347fc3e3dbb830628ce60"


def test_the_records_of_this_repository_are_current():
    found = check(str(ROOT / "evidence"))
    assert not found.stale, "sources changed since: record again, or mark the record pending with the reason"
    assert found.records


def test_the_table_in_the_docs_is_the_one_that_the_records_give():
    page = (ROOT / "docs" / "regimes.md").read_text()
    assert page.partition(MARK)[2].strip() == regimes_table(str(ROOT / "evidence")).strip(), "kw evidence table"


def test_the_page_of_the_suite_is_the_one_that_the_records_give():
    page = (ROOT / "docs" / "optimize-suite.md").read_text()
    assert page.partition(MARK)[2].strip() == suite_page(str(ROOT / "evidence")).strip(), "kw evidence table"


TABLES = {
    "kernel": kernels_page,
    "kernel summary": kernel_summary,
    "ladder": ladders_page,
    "ladder summary": ladder_summary,
    "optimize summary": suite_summary,
}


@pytest.mark.parametrize(("kind", "table"), TABLES.items())
def test_tables_are_those_that_the_records_give(kind, table):
    mark, ending = marks_of(kind)
    held = (ROOT / PAGES[kind]).read_text().partition(mark)[2].partition(ending)[0]
    assert held.strip()
    assert held.strip() == table(str(ROOT / "evidence")).strip(), "kw evidence table"


def test_comments_docstrings_and_layout_do_not_change_a_hash(tmp_path):
    one, other, changed = (tmp_path / f"{n}.py" for n in "abc")
    one.write_text('"""What."""\ndef f(x):\n    """Doc."""\n    return x + 1  # why\n')
    other.write_text("def f( x ):\n    return x+1\n")
    changed.write_text("def f(x):\n    return x + 2\n")
    assert source_hash(one) == source_hash(other) != source_hash(changed)


def test_the_header_of_a_cpp_candidate_is_part_of_its_meaning(tmp_path):
    one, other, changed = (tmp_path / f"{n}.cpp" for n in "abc")
    one.write_text("// kw: entry f\n// a remark\nint f() { return 1; }\n")
    other.write_text("// kw: entry f\nint f() {\n  return 1; /* one */ }\n")
    changed.write_text("// kw: entry g\nint f() { return 1; }\n")
    assert source_hash(one) == source_hash(other) != source_hash(changed)


def test_the_closure_follows_imports_inside_functions():
    closure = import_closure("kernelwright.diagnose.why")
    assert PACKAGE / "diagnose" / "compiled.py" in closure
    assert PACKAGE / "work" / "vector.py" in closure
    assert not any("report" in path.parts for path in closure), "a change of a page is no change of a measurement"


def test_a_kernel_hangs_on_its_cuda_and_a_ladder_on_the_headers_of_its_rungs_alone():
    def names(kind, name):
        return {path.name for path in sources_of(kind, name, Path())}

    cuda = {"long_rows.cu", "shared_row.cuh", "cluster.cuh", "grid.cuh", "cp_async.cuh"}
    assert cuda | {"clusters.py", "kernel.py"} <= names("kernel", "softmax")
    assert names("ladder", "gemm_fp32") >= {"four.cuh", "cp_async.cuh"}
    assert not names("ladder", "gemm_fp32") & {"cluster.cuh", "mma.cuh"}


def test_what_a_measurement_runs_under_and_the_datasheets_belong_to_it():
    closure = import_closure("kernelwright.diagnose.why", "kernelwright.judge.moves")
    assert PACKAGE / "sandbox" / "confine.py" in closure, "it sets the threads and the pages of what is measured"
    assert PACKAGE / "machine" / "specs.json" in closure


def test_data_is_hashed_by_what_it_says(tmp_path):
    one, other, changed = (tmp_path / f"{n}.json" for n in "abc")
    one.write_text('{"a": 1, "url": "https://x/*y*/"}')
    other.write_text('{\n  "url": "https://x/*y*/",\n  "a": 1\n}\n')
    changed.write_text('{"a": 1, "url": "https://z/*y*/"}')
    assert source_hash(one) == source_hash(other) != source_hash(changed)


@pytest.mark.parametrize("folder", ["nowhere", "."])
def test_a_folder_without_records_is_no_proof(tmp_path, folder):
    with pytest.raises(NotFoundError, match="no records") as caught:
        check(str(tmp_path / folder))
    assert "--folder" in caught.value.next


@pytest.fixture
def evidence(tmp_path):
    """A repository of one example with one record, and a function that rewrites it."""
    (tmp_path / "examples").mkdir()
    example = tmp_path / "examples" / "toy.py"
    example.write_text("def get_inputs():\n    return []\n")
    from kernelwright.judge.evidence import REGIME_ROOTS
    from kernelwright.judge.sources import hashes

    target = tmp_path / "evidence" / "toy-machine" / "regimes" / "toy.json"
    target.parent.mkdir(parents=True)

    def write(**changes):
        fields = {
            "kind": "regimes",
            "name": "toy",
            "state": "measured",
            "device": "cpu",
            "machine": "toy machine",
            "date": "2026-11-20",
            "software": {},
            "sources": hashes([example, *import_closure(*REGIME_ROOTS)], tmp_path),
        }
        target.write_text(encode(document("evidence", EvidenceRecord(**(fields | changes)))))
        return target

    return write, example, str(tmp_path / "evidence")


def test_a_record_is_current_until_a_source_changes(evidence):
    write, example, folder = evidence
    path = write()
    assert not check(folder).stale
    assert load(path).name == "toy"
    example.write_text("def get_inputs():\n    return [1]\n")
    (stale,) = check(folder).stale
    assert "examples/toy.py" in stale


def test_a_source_that_went_missing_is_stale(evidence):
    write, example, folder = evidence
    write()
    example.unlink()
    assert check(folder).stale


def test_a_pending_record_is_shown_as_unproved(evidence):
    write, example, folder = evidence
    write(state="pending", notes=("no GPU could be had",))
    example.write_text("x = 1\n")
    found = check(folder)
    assert (len(found.pending), found.stale) == (1, ())
    assert "pending" in regimes_table(folder)
    assert "no GPU could be had" in regimes_table(folder)


def test_a_hash_does_not_depend_on_the_python_version():
    """Pinned: the same text gave this under Python 3.11.7 and 3.12.1."""
    assert source_hash(Path(__file__).with_name("pinned_source.py")) == PINNED


@pytest.fixture
def suite(tmp_path):
    """A repository of a suite with one program and its record, made by hand."""
    (tmp_path / "examples" / "suite").mkdir(parents=True)
    program = tmp_path / "examples" / "suite" / "toy.py"
    program.write_text("GPU_SCALE = {}\n")
    from kernelwright.judge.sources import hashes

    target = tmp_path / "evidence" / "toy-machine" / "optimize" / "suite.json"
    target.parent.mkdir(parents=True)
    times = {"kernelwright": 1.0, "copy": 1.0, "torch.compile": 3.0, "eager": 4.0}
    made = SuiteRecord(
        kind="optimize",
        name="suite",
        state="measured",
        device="cpu",
        machine="toy machine",
        date="2026-11-20",
        software={},
        sources=hashes(sources_of("optimize", "suite", tmp_path, "cpu"), tmp_path),
        rows=(SuiteRow(name="toy:f", accepted=True, times_us=times),),
    )
    target.write_text(encode(document("evidence", made)))
    return made, program, tmp_path / "evidence"


def test_the_record_of_a_suite_hangs_on_generators_and_programs(suite):
    made, program, folder = suite
    names = {"generators", "tuning", "graph/capture", "regions/plan", "cpp/printer", "suite"}
    assert {f"kernelwright/optimize/{name}.py" for name in names} <= made.sources.keys()
    assert not any("triton" in name for name in made.sources), "it prints nothing for a CPU"
    assert not any("report" in name for name in made.sources)
    assert load(next(folder.glob("*/optimize/*.json"))) == made
    assert not check(str(folder)).stale
    program.write_text("GPU_SCALE = {'f': 1}\n")
    (stale,) = check(str(folder)).stale
    assert stale.endswith("suite.json: examples/suite/toy.py")


def test_each_kind_has_a_page_of_its_own(suite, tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"# Kept\n{MARK}\nold\n")
    write_table(str(suite[2]), str(page), "optimize")
    assert page.read_text().startswith("# Kept\n")
    assert "| toy:f |" in page.read_text()
    assert "old" not in page.read_text()
    with pytest.raises(NotFoundError) as caught:
        write_table(str(suite[2]), str(tmp_path / "none.md"), "optimize")
    assert "--kind optimize" in caught.value.next
