"""An error: what was wrong, with the value, and what to do now."""

from __future__ import annotations

from kernelwright.core.errors import KernelwrightError
from kernelwright.report.format import plain
from kernelwright.report.terminal.console import BAD, Paper


def write(error: KernelwrightError, paper: Paper) -> None:
    """Each line of the message keeps its own line: a compiler's complaint is read by lines."""
    lead: list = [("error: ", BAD)]
    for line in error.message.splitlines() or [type(error).__name__]:
        paper.paragraph(plain(line), 7, first=lead)
        lead = []
    if error.where:
        paper.paragraph(plain(error.where), 7, "dim", first=[("where: ", "dim")])
    lead = [("next:  ", "bold")]
    for line in error.next.splitlines():
        paper.paragraph(plain(line), 7, first=lead)
        lead = []
