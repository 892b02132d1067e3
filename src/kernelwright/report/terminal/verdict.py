"""`kw verify`: accepted, or rejected with the reason and the worst element."""

from __future__ import annotations

from kernelwright.core.records import Verdict
from kernelwright.report import format
from kernelwright.report.terminal.console import BAD, GOOD, TerminalWriter

INDENT = 11


def write(verdict: Verdict, paper: TerminalWriter) -> None:
    _write(verdict, format.verdict_summary(verdict), paper)


def write_rejected(verdict: Verdict, paper: TerminalWriter) -> None:
    """The same for one candidate of several, which is named."""
    _write(verdict, format.rejection_text(verdict), paper)


def _write(verdict: Verdict, sentence: str, paper: TerminalWriter) -> None:
    word, style = ("accepted", GOOD) if verdict.accepted else ("rejected", BAD)
    head = [(word, style), " " * (INDENT - len(word))]
    paper.print_paragraph(sentence, INDENT, first=head)
    for detail in filter(None, (format.worst_element_text(verdict), *format.verdict_notes(verdict))):
        paper.print_paragraph(detail, INDENT, "dim")
