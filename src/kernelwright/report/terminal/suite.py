"""`kw evidence record --kind optimize`: what the suite says of this machine, and which programs were rejected."""

from __future__ import annotations

from kernelwright.core.optimization import SuiteRecord
from kernelwright.report import words
from kernelwright.report.suite import summary_lines
from kernelwright.report.terminal.paper import BAD, Paper

INDENT = 10
MOST_REJECTED = 12


def write(found: SuiteRecord, paper: Paper) -> None:
    paper.head("the suite, optimised", f"on {words.plain(found.machine)}, {found.date}")
    paper.line()
    lines = summary_lines(found.rows)
    wide = max(len(label) for label, _ in lines) + paper.gap
    for label, text in lines:
        paper.paragraph(text, 2 + wide, first=["  ", (label.ljust(wide), "dim")])
    rejected = [row for row in found.rows if not row.accepted]
    for row in rejected[:MOST_REJECTED]:
        paper.paragraph(words.plain(f"{row.name}: {row.reason}"), INDENT, first=[("rejected".ljust(INDENT), BAD)])
    if len(rejected) > MOST_REJECTED:
        paper.line("  ", (f"and {len(rejected) - MOST_REJECTED:,} more were rejected", "dim"))
    for note in found.notes:
        paper.paragraph(words.plain(note), INDENT, "dim", first=[("pending".ljust(INDENT), "dim")])
