"""`kw why ... --device emulated`: transactions of each memory access, the worst first, and recommendations."""

from __future__ import annotations

from kernelwright.core.emulation import Emulation, MemoryAccess
from kernelwright.core.units import bytes_text, count_text
from kernelwright.report import format
from kernelwright.report.terminal.console import BAD, TerminalWriter

MAX_ROWS = 12


def write(emulation: Emulation, writer: TerminalWriter) -> None:
    """Write an emulation."""
    writer.print_header(
        f"{format.sanitize_line(emulation.candidate)} for {format.sanitize_line(emulation.problem)}",
        "emulated on the CPU, not timed",
    )
    writer.print_line()
    writer.print_paragraph(format.sanitize_line(emulation.summary), 2, BAD if emulation.sanitizer_findings else "bold")
    writer.print_line()
    if emulation.accesses:
        head = ["line", "access", "requests", "per request", "minimum", "bytes/lane"]
        worst = sorted(
            emulation.accesses,
            key=lambda one: -(one.transactions_per_request - one.ideal_transactions_per_request) * one.requests,
        )
        rows = [
            [
                f"{one.line}",
                f"{one.kind} {one.operand}".strip(),
                f"{one.requests:,}",
                _transactions_text(one),
                f"{one.ideal_transactions_per_request:.3g}",
                str(one.access_bytes),
            ]
            for one in worst[:MAX_ROWS]
        ]
        writer.print_table(head, rows, [[format.sanitize_line(one.code)] for one in worst[:MAX_ROWS]])
        writer.print_line()
        flops, sector_bytes = emulation.flops, emulation.global_bytes
        intensity = flops / sector_bytes if sector_bytes else 0.0
        traffic = f"{count_text(flops)} FLOP, {bytes_text(sector_bytes)} of sectors without cache hits"
        writer.print_paragraph(f"{traffic}: {intensity:.3g} FLOP/byte", 2, "dim")
    for number, one in enumerate(emulation.recommendations[:MAX_ROWS], 1):
        writer.print_paragraph(format.sanitize_line(one.action), 5, first=[f"  {number}. "])


def _transactions_text(one: MemoryAccess) -> str:
    """`31.7 sectors`, `1 wavefront`."""
    unit = "wavefront" if one.kind.startswith("shared") else "sector"
    number = f"{one.transactions_per_request:.3g}"
    return f"{number} {unit}{'' if number == '1' else 's'}"
