"""`kw suite run`: every candidate with its verdict and speedups, and fast_p."""

from __future__ import annotations

from collections.abc import Sequence

from kernelwright.core.fast_p import FAST_P_THRESHOLDS
from kernelwright.core.suite_run import SuiteRun
from kernelwright.report import format
from kernelwright.report import suite_run as texts
from kernelwright.report.terminal.console import TerminalWriter


def write(run: SuiteRun, writer: TerminalWriter) -> None:
    """Write a suite run."""
    writer.print_header(
        f"{format.sanitize_line(run.suite)}: {texts.suite_summary(run)}", format.machine_text(run.machine)
    )
    head = ("candidate", "verdict", *(f"against {name}" for name in run.baselines))
    rows = _rows(run, brief=False)
    writer.print_table(
        head,
        rows if writer.table_fits(head, rows) else _rows(run, brief=True),
        row_notes=list(map(texts.case_details, run.outcomes)),
    )
    if run.curves:
        writer.print_line("")
        head, rows = _shares(run, FAST_P_THRESHOLDS)
        writer.print_table(head, rows) if writer.table_fits(head, rows) else writer.print_table(
            *_shares(run, texts.NARROW_THRESHOLDS)
        )
    for note in texts.suite_notes(run):
        writer.print_paragraph(note, 0, "dim")


def _rows(run: SuiteRun, *, brief: bool) -> list[tuple[str, ...]]:
    return [
        (
            texts.case_text(one),
            one.status_text,
            *(texts.baseline_comparison_text(one, name, brief=brief) for name in run.baselines),
        )
        for one in run.outcomes
    ]


def _shares(run: SuiteRun, points: Sequence[float]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    rows = [
        (
            format.sanitize_line(one.baseline),
            *(texts.share_text(texts.point_at(one, p), one.num_problems) for p in points),
        )
        for one in run.curves
    ]
    return ("fast_p", *map(texts.threshold_text, points)), rows
