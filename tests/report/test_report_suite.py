"""The suite in numbers and in words, from rows made by hand."""

import pytest

from kernelwright.core.evidence import RowGroup, RowState
from kernelwright.core.optimization import ProgramSuiteRow
from kernelwright.report.suite import (
    COLUMNS,
    is_slower,
    markdown,
    summarize_rows,
    summary_lines,
    summary_table,
    winners_text,
)

MB = 1_000_000


def row(name, ours, copy, compiled, eager, moved=MB, **changes):
    times = {"kernelwright": ours, "copy": copy, "torch.compile": compiled, "eager": eager}
    fields = {"accepted": True, "compulsory_bytes": moved, "floor_us": 1.0, "times_us": times}
    return ProgramSuiteRow(name=name, **(fields | changes))


ROWS = [
    row("a:large", 100.0, 50.0, 100.0, 400.0, 50 * MB),
    row("a:small", 8.0, 1.0, 4.0, 8.0),
    row("b:wrong", 1.0, 1.0, 100.0, 100.0, accepted=False, reason="inaccurate: 3 | 4"),
    ProgramSuiteRow(name="b:broken", accepted=False, reason="ProblemError: no"),
]


def test_means_are_geometric_and_over_what_was_accepted():
    found = summarize_rows(ROWS)
    assert (found.programs, found.accepted, found.large) == (4, 2, 1)
    assert found.time_over_copy == pytest.approx(4.0)
    assert found.time_over_copy_large == pytest.approx(2.0)
    assert found.speedup_over_compile == pytest.approx(0.5**0.5)
    assert found.speedup_over_eager == pytest.approx(2.0)
    assert (found.slower_than_compile, found.slower_than_eager) == (1, 0)


@pytest.mark.parametrize(
    ("ours", "other", "slower"),
    [(100.0, 98.0, False), (103.0, 100.0, True), (12.0, 10.0, False), (12.1, 10.0, True), (1000.0, 985.0, False)],
)
def test_slower_needs_two_per_cent_and_two_microseconds(ours, other, slower):
    assert is_slower(row("a:x", ours, 1.0, other, 1e6), "torch.compile") == slower


def test_without_torch_compile_nobody_is_compared_with_it():
    only = row("a:x", 2.0, 1.0, 1.0, 4.0)
    del only.times_us["torch.compile"]
    found = summarize_rows([only])
    assert (found.speedup_over_compile, found.slower_than_compile) == (None, 0)
    assert found.speedup_over_eager == pytest.approx(2.0)


def test_a_suite_of_which_nothing_was_timed_has_no_means():
    found = summarize_rows(ROWS[3:])
    assert (found.programs, found.accepted, found.time_over_copy, found.speedup_over_eager) == (1, 0, None, None)
    assert dict(summary_lines(ROWS[3:]))["speedup over eager"] == "-"


def test_the_lines_say_the_numbers():
    assert dict(summary_lines(ROWS)) == {
        "programs": "4, 2 accepted",
        "time over copy time": "4.00x; 2.00x for 1 program of 50.0 MB or more",
        "speedup over torch.compile": "0.71x; 1 program is slower",
        "speedup over eager": "2.00x; none is slower",
        "fast_1": "0.25 over eager, 0.00 over torch.compile",
    }


def test_who_won_counts_regions():
    ways = ("region_0: outer 1, warps 4, 2.0x faster", "region_1: torch.compile, 1.1x faster", "region_2: torch, ")
    assert winners_text(row("a:x", 1, 1, 1, 1, winners=(*ways, ways[0]))) == "2 kernels, 1 torch, 1 torch.compile"
    assert (
        winners_text(row("a:x", 1, 1, 1, 1, winners=(*ways, "whole: torch.compile"))) == "whole program: torch.compile"
    )
    assert winners_text(row("a:x", 1, 1, 1, 1)) == "no regions"


def entry(rows=tuple(ROWS), state="current", **changes):
    states = tuple(
        RowState(
            kind="optimize",
            workload=f"suite/{row.name}",
            variant="",
            machine="toy machine",
            state=state,
            reason="" if state == "current" else "its code has changed",
            date="2026-11-20",
            commit="abc",
        )
        for row in rows
    )
    fields = {"name": "suite", "device": "cpu", "machine": "toy machine", "environment": {"torch": "2"}}
    return RowGroup(**(fields | {"results": rows, "states": states} | changes))


def test_the_page_has_a_line_for_every_program():
    page = markdown([entry(), entry(machine="other", rows=())])
    table = [line for line in page.splitlines() if line.startswith("|")]
    assert len(table) == 2 + 4 + 2
    assert {line.replace("\\|", "").count("|") for line in table} == {len(COLUMNS) + 1}
    assert "| a:large | 50.0 MB | 1.00 us | 100 us | 50.0 us | 100 us | 400 us | 2.00x | 1.00x | 4.00x |" in page
    assert "| 2026-11-20, abc |" in page
    assert "rejected: inaccurate: 3 \\| 4" in page
    assert page.index("- programs: 4, 2 accepted") < page.index("| a:large")


def test_a_page_without_records_says_how_to_make_one():
    assert "kw evidence record --kind optimize" in markdown([])


def test_a_brief_says_what_is_not_current():
    assert summary_table([entry(state="superseded")]).endswith(
        "\n\ntoy machine, superseded: suite (4 rows). Its code has changed.\n"
    )
