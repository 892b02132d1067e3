"""`kw ladder`: a row for each rung, with its rate, its fraction of the baseline, and the next step."""

from __future__ import annotations

from kernelwright.core.ladder import LadderRun
from kernelwright.core.units import number_text
from kernelwright.report import format, ladders
from kernelwright.report.terminal.console import BAD, TerminalWriter

MAX_SIZES = 2
"""More columns would shorten the names of rungs."""


def write(run: LadderRun, writer: TerminalWriter) -> None:
    """Write a ladder run."""
    machine = f"on {format.machine_text(run.machine)}"
    subtitle = f"recorded {run.recorded_date}, {machine}" if run.recorded_date else machine
    writer.print_header(format.sanitize_line(run.ladder), format.sanitize_line(subtitle))
    writer.print_line()
    timed = ladders.timed_sizes(run)
    sizes = timed[-MAX_SIZES:]
    head = ["rung", "verified on", *map(ladders.size_text, sizes), f"of {run.baseline}"]
    rows = [
        [
            f"{rung.number:2} {rung.name}",
            number_text(rung.num_shapes, "shape") if rung.accepted else "rejected",
            *ladders.rate_texts(rung, sizes),
            ladders.baseline_share_text(rung),
        ]
        for rung in run.rungs
    ]
    writer.print_table(head, rows, [[rung.next] for rung in run.rungs])
    for rung in run.rungs:
        if not rung.accepted:
            writer.print_paragraph(format.sanitize_line(f"{rung.name}: {rung.reason}"), 10, first=[("rejected  ", BAD)])
    if len(timed) > len(sizes):
        writer.print_line((f"{len(sizes)} of {len(timed)} sizes; see --json or --html for all", "dim"))
    for note in (*run.notes, *(f"{rung.name}: {note}" for rung in run.rungs for note in rung.notes)):
        writer.print_paragraph(format.sanitize_line(note), 0, "dim")
