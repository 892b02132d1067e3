"""`kw why ... --device emulated`: what each access costs, the worst first, and what to do about it."""

from __future__ import annotations

from kernelwright.core.emulation import Access, Emulation
from kernelwright.core.units import bytes_text, count_text
from kernelwright.report import format
from kernelwright.report.terminal.console import BAD, Paper

MOST_ROWS = 12


def write(found: Emulation, paper: Paper) -> None:
    paper.head(f"{format.plain(found.candidate)} for {format.plain(found.problem)}", "emulated on the CPU: no times")
    paper.line()
    paper.paragraph(format.plain(found.sentence), 2, BAD if found.faults else "bold")
    paper.line()
    if found.accesses:
        head = ["line", "access", "requests", "each costs", "would do", "bytes a lane"]
        poor = sorted(found.accesses, key=lambda one: -(one.per_request - one.ideal) * one.requests)
        rows = [
            [
                f"{one.line}",
                f"{one.kind} {one.operand}".strip(),
                f"{one.requests:,}",
                _cost(one),
                f"{one.ideal:.3g}",
                str(one.access_bytes),
            ]
            for one in poor[:MOST_ROWS]
        ]
        paper.table(head, rows, [[format.plain(one.code)] for one in poor[:MOST_ROWS]])
        paper.line()
        per_byte = found.flops / found.global_bytes if found.global_bytes else 0.0
        traffic = f"{count_text(found.flops)} FLOP, {bytes_text(found.global_bytes)} of sectors before any cache helps"
        paper.paragraph(f"{traffic}: {per_byte:.3g} FLOP/byte", 2, "dim")
    for at, move in enumerate(found.moves[:MOST_ROWS], 1):
        paper.paragraph(format.plain(move.what), 5, first=[f"  {at}. "])


def _cost(one: Access) -> str:
    """`31.7 sectors`, `1 pass`."""
    unit = "pass" if one.kind.startswith("shared") else "sector"
    cost = f"{one.per_request:.3g}"
    return f"{cost} {unit}" + ("" if cost == "1" else "es" if unit == "pass" else "s")
