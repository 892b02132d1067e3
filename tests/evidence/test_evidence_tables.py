"""Pages hold the tables that rows give, and the README quotes current rows alone."""

from pathlib import Path

import msgspec
import pytest

from kernelwright.core.errors import NotFoundError
from kernelwright.evidence import library, tables
from kernelwright.evidence.ladder_runs import load_recorded_run
from kernelwright.evidence.layouts import LayoutResult
from kernelwright.evidence.rows import read_rows
from kernelwright.hwcheck import access_counters, mma_fragments
from kernelwright.layouts import COPY_ATOMS, MMA_ATOMS


def test_a_table_is_written_between_its_marks(tmp_path, monkeypatch):
    page, (mark, end) = tmp_path / "page.md", tables.table_markers("kernel summary")
    page.write_text(f"# Kept\n{mark}\nold\n{end}\nbelow\n")
    monkeypatch.setattr(tables, "render_tables", lambda folder, wanted: dict.fromkeys(wanted, "| new |\n"))
    assert tables.write_tables("evidence", ["kernel summary"], str(page)) == [str(page)]
    assert page.read_text() == f"# Kept\n{mark}\n\n| new |\n\n{end}\nbelow\n"
    with pytest.raises(NotFoundError, match="no page"):
        tables.write_tables("evidence", ["kernel"], str(tmp_path / "other.md"))


def test_a_readme_that_quotes_what_is_not_current_is_found(tmp_path, monkeypatch):
    page = tmp_path / "README.md"
    named = [name for name, place in tables.PAGES.items() if place == "README.md"]
    page.write_text("".join("{}\n\n| a |\n\n{}\n".format(*tables.table_markers(name)) for name in named))
    monkeypatch.setattr(tables, "PAGES", dict.fromkeys(named, str(page)))
    monkeypatch.setattr(tables, "render_tables", lambda folder, wanted: dict.fromkeys(wanted, "| a |\n"))
    assert tables.outdated_tables("evidence", str(page)) == []
    monkeypatch.setattr(tables, "render_tables", lambda folder, wanted: dict.fromkeys(wanted, "| b |\n"))
    assert tables.outdated_tables("evidence", str(page)) == named
    monkeypatch.setattr(tables, "render_tables", lambda folder, wanted: dict.fromkeys(wanted, "no rows\n"))
    assert tables.outdated_tables("evidence", str(page)) == named


def test_a_summary_leaves_out_what_is_not_current():
    rows = read_rows("evidence", "kernel")
    states = {row.key: row.to_row_state("current") for row in rows}
    whole = tables._render_table("kernel summary", "evidence", states)
    states[rows[0].key] = rows[0].to_row_state("superseded", "its code has changed")
    assert tables._render_table("kernel summary", "evidence", states) != whole
    assert f"{rows[0].commit}: superseded |" in tables._render_table("kernel", "evidence", states)
    states = {row.key: row.to_row_state("superseded") for row in read_rows("evidence", "optimize")}
    assert "|" not in tables._render_table("optimize summary", "evidence", states), "an empty table would pass as one"


def test_a_summary_skips_ladders_that_were_removed(monkeypatch):
    rows = read_rows("evidence", "ladder")
    states = {row.key: row.to_row_state("current") for row in rows}
    recorded = tables.recorded_ladder_runs(rows, states)
    removed = [
        msgspec.structs.replace(one, run=msgspec.structs.replace(one.run, ladder="gemm_removed")) for one in recorded
    ]
    whole = tables._render_table("ladder summary", "evidence", states)
    assert "gemm_fp32" in whole
    monkeypatch.setattr(tables, "recorded_ladder_runs", lambda *_: [*recorded, *removed])
    assert tables._render_table("ladder summary", "evidence", states) == whole


def test_kernels_are_listed_with_their_newest_rows():
    found = {one.name: one.evidence for one in library.load_library().kernels}
    assert found["softmax"].startswith("1.")
    assert "comparisons on NVIDIA H200" in found["softmax"]


def test_a_part_of_a_climb_may_be_asked_for():
    found = load_recorded_run("gemm_fp32", "evidence", ["9", "naive"], [(4096, 4096, 4096)])
    assert [one.name for one in found.rungs] == ["naive", "warp_tile"]
    assert {time.size for one in found.rungs for time in one.times} <= {(4096, 4096, 4096)}
    with pytest.raises(NotFoundError, match="77x77x77 was not recorded"):
        load_recorded_run("gemm_fp32", "evidence", sizes=[(77, 77, 77)])
    with pytest.raises(NotFoundError, match="no record"):
        load_recorded_run("gemm_fp32", str(Path("nowhere")))


def test_every_element_and_access_is_where_the_layout_says():
    results = {row.workload: row.decode_result(LayoutResult) for row in read_rows("evidence", "layout")}
    found = results["fragments"].fragments
    assert {one.instruction for one in found} >= {*MMA_ATOMS, *COPY_ATOMS, *(a.name for a in mma_fragments.WGMMA_ATOMS)}
    assert not [one for one in found if one.mismatches]
    assert sum(one.elements for one in found) > 100_000
    costs = results["accesses"].accesses
    assert len(costs) == len(access_counters.SHARED_PATTERNS) + len(access_counters.GLOBAL_PATTERNS)
    assert not [one for one in costs if one.predicted != one.measured]


@pytest.mark.parametrize("name", tables.PAGES)
def test_every_table_is_written_from_the_recorded_rows(name):
    states = {row.key: row.to_row_state("current") for row in read_rows("evidence")}
    text = tables._render_table(name, "evidence", states)
    recorded = read_rows("evidence", name.removesuffix(tables.SUMMARY_SUFFIX))
    assert text.startswith("No ") == (not recorded)
    assert "superseded" not in text
