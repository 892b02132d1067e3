"""`kw verify`: accepted, or rejected with the reason and the worst element."""

from __future__ import annotations

from kernelwright.core.records import Verdict
from kernelwright.report import format
from kernelwright.report.terminal.console import BAD, GOOD, Paper

INDENT = 11


def write(verdict: Verdict, paper: Paper) -> None:
    _write(verdict, format.verdict_sentence(verdict), paper)


def write_rejected(verdict: Verdict, paper: Paper) -> None:
    """The same for one candidate of several, which is named."""
    _write(verdict, format.rejection_text(verdict), paper)


def _write(verdict: Verdict, sentence: str, paper: Paper) -> None:
    word, style = ("accepted", GOOD) if verdict.accepted else ("rejected", BAD)
    head = [(word, style), " " * (INDENT - len(word))]
    paper.paragraph(sentence, INDENT, first=head)
    for detail in filter(None, (format.worst_text(verdict), *format.verdict_notes(verdict))):
        paper.paragraph(detail, INDENT, "dim")
