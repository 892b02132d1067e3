"""`kw suite run`: every candidate with its verdict and its times, and how many problems are won by how much."""

from __future__ import annotations

from collections.abc import Sequence

from kernelwright.core.suite_run import POINTS, SuiteRun
from kernelwright.report import format
from kernelwright.report import suite_run as said
from kernelwright.report.terminal.console import Paper


def write(run: SuiteRun, paper: Paper) -> None:
    paper.head(f"{format.plain(run.suite)}: {said.sentence(run)}", format.machine_text(run.machine))
    head = ("candidate", "verdict", *(f"against {name}" for name in run.baselines))
    rows = _rows(run, brief=False)
    paper.table(
        head, rows if paper.fits(head, rows) else _rows(run, brief=True), under=list(map(said.details, run.outcomes))
    )
    if run.curves:
        paper.line("")
        head, rows = _shares(run, POINTS)
        paper.table(head, rows) if paper.fits(head, rows) else paper.table(*_shares(run, said.FEW_POINTS))
    for note in said.notes(run):
        paper.paragraph(note, 0, "dim")


def _rows(run: SuiteRun, *, brief: bool) -> list[tuple[str, ...]]:
    return [
        (
            said.case_text(one),
            one.standing,
            *(said.against_text(one, name, brief=brief) for name in run.baselines),
        )
        for one in run.outcomes
    ]


def _shares(run: SuiteRun, points: Sequence[float]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    rows = [
        (format.plain(one.baseline), *(said.share_text(said.at(one, p), one.problems) for p in points))
        for one in run.curves
    ]
    return ("fast_p", *map(said.p_text, points)), rows
