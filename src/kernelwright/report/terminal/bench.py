"""`kw bench`: who was rejected and why, every arm beside its floor, every comparison with its interval."""

from __future__ import annotations

from kernelwright.core.records import Bench
from kernelwright.core.units import time_text
from kernelwright.report import format
from kernelwright.report.terminal.console import BAD, OUTCOME_STYLE, Paper
from kernelwright.report.terminal.verdict import write_rejected

MOST_NAME = 36


def write(bench: Bench, paper: Paper) -> None:
    for verdict in format.rejected(bench):
        write_rejected(verdict, paper)
    _arms(bench, paper)
    said = _comparisons(bench, paper)
    if bench.arms and not said:
        paper.paragraph(format.conditions_text(bench), 0, "dim")
    for note in dict.fromkeys(format.plain(note) for timing in format.timings_of(bench) for note in timing.notes):
        paper.paragraph(note, 0, "dim")
    for note in bench.notes:
        paper.paragraph(format.plain(note), 0, "dim")


def _arms(bench: Bench, paper: Paper) -> None:
    """Name, time, times its floor; a suspicious time says why under it."""
    names = [paper.shorten(arm.name, MOST_NAME) for arm in bench.arms]
    room = max([12, *map(len, names)])
    explained = False
    for name, arm in zip(names, bench.arms, strict=True):
        ratio = format.ratio_text(arm.time_us, arm.floor_us)
        tail = "no floor" if ratio == "-" else ratio if explained else f"{ratio} its floor"
        explained = explained or ratio != "-"
        paper.line(name.ljust(room), f"  {time_text(arm.time_us):>9}   ", tail)
        if arm.suspicious:
            paper.paragraph(format.plain(arm.suspicious), 14, first=[("  suspicious  ", BAD)])


def _comparisons(bench: Bench, paper: Paper) -> bool:
    """One line each; True when the conditions stood behind the last of them."""
    texts = [format.comparison_text(bench, found) for found in bench.comparisons]
    room = max(map(len, texts), default=0)
    conditions = format.conditions_text(bench)
    for i, (found, sentence) in enumerate(zip(bench.comparisons, texts, strict=True)):
        before, after = sentence.split(found.verdict, 1)
        verdict = (found.verdict, f"bold {OUTCOME_STYLE[found.verdict]}")
        numbers = f"  {format.times_text(found.ratio):>6}  {format.interval_text(found)}"
        last = i == len(texts) - 1
        beside = f"     {conditions}" if last and room + len(numbers) + 5 + len(conditions) <= paper.width else ""
        paper.line(before, verdict, after + " " * (room - len(sentence)), numbers, (beside, "dim"))
        if beside:
            return True
    return False
