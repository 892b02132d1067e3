"""`kw ladder`: a row for each rung, with its speed, what it is of the library's, and what to do next."""

from __future__ import annotations

from kernelwright.core.ladder import Climb
from kernelwright.core.units import number_text
from kernelwright.report import format, ladders
from kernelwright.report.terminal.console import BAD, Paper

MOST_SIZES = 2
"""More make the names of rungs too short."""


def write(found: Climb, paper: Paper) -> None:
    place = f"on {format.machine_text(found.machine)}"
    where = f"recorded {found.recorded}, {place}" if found.recorded else place
    paper.head(format.plain(found.ladder), format.plain(where))
    paper.line()
    timed = ladders.sizes_of(found)
    sizes = timed[-MOST_SIZES:]
    head = ["rung", "right on", *map(ladders.size_text, sizes), f"of {found.peer}"]
    rows = [
        [
            f"{rung.number:2} {rung.name}",
            number_text(rung.shapes, "shape") if rung.accepted else "rejected",
            *ladders.speeds(rung, sizes),
            ladders.share_text(rung),
        ]
        for rung in found.rungs
    ]
    paper.table(head, rows, [[rung.next] for rung in found.rungs])
    for rung in found.rungs:
        if not rung.accepted:
            paper.paragraph(format.plain(f"{rung.name}: {rung.reason}"), 10, first=[("rejected  ", BAD)])
    if len(timed) > len(sizes):
        paper.line((f"{len(sizes)} of {len(timed)} sizes; --json and --html hold all", "dim"))
    for note in (*found.notes, *(f"{rung.name}: {note}" for rung in found.rungs for note in rung.notes)):
        paper.paragraph(format.plain(note), 0, "dim")
