"""`kw why ... --device emulated`: what each access costs, the worst first, and what to do about it."""

from __future__ import annotations

from kernelwright.core.emulation import Emulation, MemoryAccess
from kernelwright.core.units import bytes_text, count_text
from kernelwright.report import format
from kernelwright.report.terminal.console import BAD, TerminalWriter

MAX_ROWS = 12


def write(found: Emulation, paper: TerminalWriter) -> None:
    paper.print_header(
        f"{format.sanitize_line(found.candidate)} for {format.sanitize_line(found.problem)}",
        "emulated on the CPU: no times",
    )
    paper.print_line()
    paper.print_paragraph(format.sanitize_line(found.summary), 2, BAD if found.sanitizer_findings else "bold")
    paper.print_line()
    if found.accesses:
        head = ["line", "access", "requests", "each costs", "would do", "bytes a lane"]
        poor = sorted(
            found.accesses,
            key=lambda one: -(one.transactions_per_request - one.ideal_transactions_per_request) * one.requests,
        )
        rows = [
            [
                f"{one.line}",
                f"{one.kind} {one.operand}".strip(),
                f"{one.requests:,}",
                _cost(one),
                f"{one.ideal_transactions_per_request:.3g}",
                str(one.access_bytes),
            ]
            for one in poor[:MAX_ROWS]
        ]
        paper.print_table(head, rows, [[format.sanitize_line(one.code)] for one in poor[:MAX_ROWS]])
        paper.print_line()
        per_byte = found.flops / found.global_bytes if found.global_bytes else 0.0
        traffic = f"{count_text(found.flops)} FLOP, {bytes_text(found.global_bytes)} of sectors before any cache helps"
        paper.print_paragraph(f"{traffic}: {per_byte:.3g} FLOP/byte", 2, "dim")
    for at, move in enumerate(found.recommendations[:MAX_ROWS], 1):
        paper.print_paragraph(format.sanitize_line(move.action), 5, first=[f"  {at}. "])


def _cost(one: MemoryAccess) -> str:
    """`31.7 sectors`, `1 pass`."""
    unit = "pass" if one.kind.startswith("shared") else "sector"
    cost = f"{one.transactions_per_request:.3g}"
    return f"{cost} {unit}" + ("" if cost == "1" else "es" if unit == "pass" else "s")
