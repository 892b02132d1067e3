"""`kw evidence`: which rows there are, which no longer say what today's code does, and what was written."""

from __future__ import annotations

from itertools import groupby

from kernelwright.core.evidence import EvidenceRun, EvidenceStatus, RowState
from kernelwright.core.units import number_text
from kernelwright.report.terminal.console import BAD, GOOD, TerminalWriter

INDENT, MAX_NAMES = 18, 4
STYLES = {"superseded": BAD, "older instrument": "yellow", "unverified": "dim"}


def write(found: EvidenceStatus, paper: TerminalWriter) -> None:
    """Rows that are not current, those with one reason together; then how many are."""
    others = sorted((one for one in found.rows if one.state != "current"), key=_group)
    for (state, machine, kind, reason), rows in groupby(others, key=_group):
        names = [f"{one.workload}{f' {one.variant}' if one.variant else ''}" for one in rows]
        more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
        said = f"{machine}, {kind}: {', '.join(names[:MAX_NAMES])}{more}: {reason}"
        paper.print_paragraph(said, INDENT, first=[(state.ljust(INDENT), STYLES[state])])
    good = found.counts.get("current", 0)
    paper.print_line(("current".ljust(INDENT), GOOD), f"{good} of {number_text(len(found.rows), 'row')}")
    if found.updated:
        paper.print_line(
            ("".ljust(INDENT), ""), f"{number_text(found.updated, 'row')} updated: other sources make the same code"
        )


def write_run(found: EvidenceRun, paper: TerminalWriter) -> None:
    """What was written, and what failed."""
    for line in found.failed:
        paper.print_paragraph(line, INDENT, first=[("failed".ljust(INDENT), BAD)])
    paper.print_paragraph(", ".join(found.written) or "nothing", INDENT, first=[("written".ljust(INDENT), GOOD)])


def _group(one: RowState) -> tuple[str, str, str, str]:
    return one.state, one.machine, one.kind, one.reason
