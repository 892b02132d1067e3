"""Errors: message, location and next steps."""

from __future__ import annotations

from kernelwright.core.errors import KernelwrightError
from kernelwright.report.format import sanitize_line
from kernelwright.report.terminal.console import BAD, TerminalWriter


def write(error: KernelwrightError, writer: TerminalWriter) -> None:
    """Write an error, keeping the lines of its message, which may be a compiler's."""
    lead: list = [("error: ", BAD)]
    for line in error.message.splitlines() or [type(error).__name__]:
        writer.print_paragraph(sanitize_line(line), 7, first=lead)
        lead = []
    if error.where:
        writer.print_paragraph(sanitize_line(error.where), 7, "dim", first=[("where: ", "dim")])
    lead = [("next:  ", "bold")]
    for line in error.next.splitlines():
        writer.print_paragraph(sanitize_line(line), 7, first=lead)
        lead = []
