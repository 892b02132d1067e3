"""`kw ladder`: a row for each rung, with its speed, what it is of the library's, and what to do next."""

from __future__ import annotations

from kernelwright.core.ladder import Climb, RungOutcome
from kernelwright.core.units import percent_text, rate_text
from kernelwright.report import words
from kernelwright.report.terminal.paper import BAD, Paper


def write(found: Climb, paper: Paper) -> None:
    when = f"recorded on {found.recorded}, on {found.machine}" if found.recorded else f"on {found.machine}"
    paper.head(words.plain(found.ladder), words.plain(when))
    paper.line()
    sizes = list(dict.fromkeys(time.size for rung in found.rungs for time in rung.times))
    head = ["rung", *("x".join(map(str, dict.fromkeys(size))) for size in sizes[-3:]), f"of {found.peer}"]
    paper.table(head, [_row(rung, sizes[-3:]) for rung in found.rungs], [[rung.next] for rung in found.rungs])
    for rung in found.rungs:
        if not rung.accepted:
            paper.paragraph(words.plain(f"{rung.name}: {rung.reason}"), 10, first=[("rejected  ", BAD)])
    for note in (*found.notes, *(f"{rung.name}: {note}" for rung in found.rungs for note in rung.notes)):
        paper.paragraph(words.plain(note), 0, "dim")


def _row(rung: RungOutcome, sizes: list[tuple[int, ...]]) -> list[str]:
    by_size = {time.size: time for time in rung.times}
    speeds = [rate_text(by_size[s].flops / by_size[s].time_us / 1e6) if s in by_size else "-" for s in sizes]
    shares = [time.of_peer for time in rung.times]
    share = percent_text(_mean(shares)) if shares else "-"
    return [f"{rung.number:2} {rung.name}", *speeds, share]


def _mean(shares: list[float]) -> float:
    from statistics import geometric_mean

    return geometric_mean(shares)
