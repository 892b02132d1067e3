"""`kw verify`: accepted, or rejected with the reason and the worst element."""

from __future__ import annotations

from kernelwright.core.verdict import Verdict
from kernelwright.report import format
from kernelwright.report.terminal.console import BAD, GOOD, TerminalWriter

INDENT = 11


def write(verdict: Verdict, writer: TerminalWriter) -> None:
    """Write a verdict."""
    _write(verdict, format.verdict_summary(verdict), writer)


def write_rejected(verdict: Verdict, writer: TerminalWriter) -> None:
    """Write the verdict on a rejected candidate, with its name."""
    _write(verdict, format.rejection_text(verdict), writer)


def _write(verdict: Verdict, summary: str, writer: TerminalWriter) -> None:
    status, style = ("accepted", GOOD) if verdict.accepted else ("rejected", BAD)
    head = [(status, style), " " * (INDENT - len(status))]
    writer.print_paragraph(summary, INDENT, first=head)
    for detail in filter(None, (format.worst_element_text(verdict), *format.verdict_notes(verdict))):
        writer.print_paragraph(detail, INDENT, "dim")
