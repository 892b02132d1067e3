"""`kw suite run`: every candidate with its verdict and its times, and how many problems are won by how much."""

from __future__ import annotations

from collections.abc import Sequence

from kernelwright.core.suite_run import FAST_P_THRESHOLDS, SuiteRun
from kernelwright.report import format
from kernelwright.report import suite_run as said
from kernelwright.report.terminal.console import TerminalWriter


def write(run: SuiteRun, paper: TerminalWriter) -> None:
    paper.print_header(
        f"{format.sanitize_line(run.suite)}: {said.suite_summary(run)}", format.machine_text(run.machine)
    )
    head = ("candidate", "verdict", *(f"against {name}" for name in run.baselines))
    rows = _rows(run, brief=False)
    paper.print_table(
        head,
        rows if paper.table_fits(head, rows) else _rows(run, brief=True),
        row_notes=list(map(said.case_details, run.outcomes)),
    )
    if run.curves:
        paper.print_line("")
        head, rows = _shares(run, FAST_P_THRESHOLDS)
        paper.print_table(head, rows) if paper.table_fits(head, rows) else paper.print_table(
            *_shares(run, said.NARROW_THRESHOLDS)
        )
    for note in said.suite_notes(run):
        paper.print_paragraph(note, 0, "dim")


def _rows(run: SuiteRun, *, brief: bool) -> list[tuple[str, ...]]:
    return [
        (
            said.case_text(one),
            one.status_text,
            *(said.baseline_comparison_text(one, name, brief=brief) for name in run.baselines),
        )
        for one in run.outcomes
    ]


def _shares(run: SuiteRun, points: Sequence[float]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    rows = [
        (
            format.sanitize_line(one.baseline),
            *(said.share_text(said.point_at(one, p), one.num_problems) for p in points),
        )
        for one in run.curves
    ]
    return ("fast_p", *map(said.threshold_text, points)), rows
