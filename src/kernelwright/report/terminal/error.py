"""An error: what was wrong, with the value, and what to do now."""

from __future__ import annotations

from kernelwright.core.errors import KernelwrightError
from kernelwright.report.format import sanitize_line
from kernelwright.report.terminal.console import BAD, TerminalWriter


def write(error: KernelwrightError, paper: TerminalWriter) -> None:
    """Each line of the message keeps its own line: a compiler's complaint is read by lines."""
    lead: list = [("error: ", BAD)]
    for line in error.message.splitlines() or [type(error).__name__]:
        paper.print_paragraph(sanitize_line(line), 7, first=lead)
        lead = []
    if error.where:
        paper.print_paragraph(sanitize_line(error.where), 7, "dim", first=[("where: ", "dim")])
    lead = [("next:  ", "bold")]
    for line in error.next.splitlines():
        paper.print_paragraph(sanitize_line(line), 7, first=lead)
        lead = []
