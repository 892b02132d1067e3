"""`kw evidence`: the state of all rows, and what was written."""

from __future__ import annotations

from itertools import groupby

from kernelwright.core.evidence import EvidenceRun, EvidenceStatus, RowState
from kernelwright.core.units import number_text
from kernelwright.report.terminal.console import BAD, GOOD, TerminalWriter

INDENT, MAX_NAMES = 18, 4
STYLES = {"superseded": BAD, "older instrument": "yellow", "unverified": "dim"}


def write(status: EvidenceStatus, writer: TerminalWriter) -> None:
    """Write the rows that are not current, grouped by reason, and the number of current rows."""
    outdated = sorted((one for one in status.rows if one.state != "current"), key=_group)
    for (state, machine, kind, reason), rows in groupby(outdated, key=_group):
        names = [f"{one.workload}{f' {one.variant}' if one.variant else ''}" for one in rows]
        more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
        text = f"{machine}, {kind}: {', '.join(names[:MAX_NAMES])}{more}: {reason}"
        writer.print_paragraph(text, INDENT, first=[(state.ljust(INDENT), STYLES[state])])
    current = status.counts.get("current", 0)
    writer.print_line(("current".ljust(INDENT), GOOD), f"{current} of {number_text(len(status.rows), 'row')}")
    if status.updated:
        rows = number_text(status.updated, "row")
        writer.print_line(("".ljust(INDENT), ""), f"{rows} updated: the changed sources build the same code")


def write_run(run: EvidenceRun, writer: TerminalWriter) -> None:
    """Write the rows or pages that were written, and the failures."""
    for line in run.failed:
        writer.print_paragraph(line, INDENT, first=[("failed".ljust(INDENT), BAD)])
    writer.print_paragraph(", ".join(run.written) or "nothing", INDENT, first=[("written".ljust(INDENT), GOOD)])


def _group(one: RowState) -> tuple[str, str, str, str]:
    return one.state, one.machine, one.kind, one.reason
