"""`kw bench`: who was rejected and why, every arm beside its floor, every comparison with its interval."""

from __future__ import annotations

from kernelwright.core.records import Bench
from kernelwright.core.units import time_text
from kernelwright.report import format
from kernelwright.report.terminal.console import BAD, COMPARISON_STYLE, TerminalWriter
from kernelwright.report.terminal.verdict import write_rejected

MAX_NAME_LENGTH = 36


def write(bench: Bench, paper: TerminalWriter) -> None:
    for verdict in format.rejected_verdicts(bench):
        write_rejected(verdict, paper)
    _variants(bench, paper)
    said = _comparisons(bench, paper)
    if bench.variants and not said:
        paper.print_paragraph(format.conditions_text(bench), 0, "dim")
    for note in dict.fromkeys(
        format.sanitize_line(note) for timing in format.variant_timings(bench) for note in timing.notes
    ):
        paper.print_paragraph(note, 0, "dim")
    for note in bench.notes:
        paper.print_paragraph(format.sanitize_line(note), 0, "dim")


def _variants(bench: Bench, paper: TerminalWriter) -> None:
    """Name, time, times its floor; a suspicious time says why under it."""
    names = [paper.shorten(arm.name, MAX_NAME_LENGTH) for arm in bench.variants]
    room = max([12, *map(len, names)])
    explained = False
    for name, arm in zip(names, bench.variants, strict=True):
        ratio = format.ratio_text(arm.time_us, arm.floor_us)
        tail = "no floor" if ratio == "-" else ratio if explained else f"{ratio} its floor"
        explained = explained or ratio != "-"
        paper.print_line(name.ljust(room), f"  {time_text(arm.time_us):>9}   ", tail)
        if arm.suspicious:
            paper.print_paragraph(format.sanitize_line(arm.suspicious), 14, first=[("  suspicious  ", BAD)])


def _comparisons(bench: Bench, paper: TerminalWriter) -> bool:
    """One line each; True when the conditions stood behind the last of them."""
    texts = [format.comparison_text(bench, found) for found in bench.comparisons]
    room = max(map(len, texts), default=0)
    conditions = format.conditions_text(bench)
    for i, (found, sentence) in enumerate(zip(bench.comparisons, texts, strict=True)):
        before, after = sentence.split(found.verdict, 1)
        verdict = (found.verdict, f"bold {COMPARISON_STYLE[found.verdict]}")
        numbers = f"  {format.factor_text(found.speedup):>6}  {format.interval_text(found)}"
        last = i == len(texts) - 1
        beside = f"     {conditions}" if last and room + len(numbers) + 5 + len(conditions) <= paper.width else ""
        paper.print_line(before, verdict, after + " " * (room - len(sentence)), numbers, (beside, "dim"))
        if beside:
            return True
    return False
