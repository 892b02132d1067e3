"""`kw evidence`: which records there are, and which no longer belong to their sources."""

from __future__ import annotations

from kernelwright.core.records import EvidenceReport
from kernelwright.report.terminal.paper import BAD, GOOD, Paper

INDENT = 9


def write(report: EvidenceReport, paper: Paper) -> None:
    for word, style, lines in (("stale", BAD, report.stale), ("pending", "dim", report.pending)):
        for line in lines:
            paper.paragraph(line, INDENT, first=[(word.ljust(INDENT), style)])
    good = len(report.records) - len(report.stale) - len(report.pending)
    paper.line(("current".ljust(INDENT), GOOD), f"{good} of {len(report.records)} records")
