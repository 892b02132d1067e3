"""`kw ladder`: a row for each rung, with its speed, what it is of the library's, and what to do next."""

from __future__ import annotations

from kernelwright.core.ladder import LadderRun
from kernelwright.core.units import number_text
from kernelwright.report import format, ladders
from kernelwright.report.terminal.console import BAD, TerminalWriter

MAX_SIZES = 2
"""More make the names of rungs too short."""


def write(found: LadderRun, paper: TerminalWriter) -> None:
    place = f"on {format.machine_text(found.machine)}"
    where = f"recorded {found.recorded_date}, {place}" if found.recorded_date else place
    paper.print_header(format.sanitize_line(found.ladder), format.sanitize_line(where))
    paper.print_line()
    timed = ladders.timed_sizes(found)
    sizes = timed[-MAX_SIZES:]
    head = ["rung", "right on", *map(ladders.size_text, sizes), f"of {found.baseline}"]
    rows = [
        [
            f"{rung.number:2} {rung.name}",
            number_text(rung.num_shapes, "shape") if rung.accepted else "rejected",
            *ladders.rate_texts(rung, sizes),
            ladders.baseline_share_text(rung),
        ]
        for rung in found.rungs
    ]
    paper.print_table(head, rows, [[rung.next] for rung in found.rungs])
    for rung in found.rungs:
        if not rung.accepted:
            paper.print_paragraph(format.sanitize_line(f"{rung.name}: {rung.reason}"), 10, first=[("rejected  ", BAD)])
    if len(timed) > len(sizes):
        paper.print_line((f"{len(sizes)} of {len(timed)} sizes; --json and --html hold all", "dim"))
    for note in (*found.notes, *(f"{rung.name}: {note}" for rung in found.rungs for note in rung.notes)):
        paper.print_paragraph(format.sanitize_line(note), 0, "dim")
