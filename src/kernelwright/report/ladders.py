"""Climbs as Markdown: each ladder on each machine, rung by rung."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from math import prod
from statistics import geometric_mean

from kernelwright.core.evidence import RowState
from kernelwright.core.ladder import Climb, LadderClimb, RungCount, RungOutcome
from kernelwright.core.units import number_text, percent_text, rate_text, time_text
from kernelwright.report import format, row_states

Size = tuple[int, ...]
_SCALES = {"PFLOP/s": 1e15, "TFLOP/s": 1e12, "GFLOP/s": 1e9, "MFLOP/s": 1e6}


def markdown(climbs: Iterable[LadderClimb]) -> str:
    """A heading and a table for each, and what counters said of its rungs."""
    parts = [_climb(one.climb, one.states) + _counts(one.counts) for one in climbs]
    return "\n".join(parts) if parts else "No ladder has a row yet: `kw evidence record --kind ladder`.\n"


SUMMARY_SIZE = (4096, 4096, 4096)


def summary(found: LadderClimb) -> str:
    """A short table: each rung's question, rate at `SUMMARY_SIZE`, share of the peer over all sizes, and date."""
    climb = found.climb
    lines = [f"| rung | asks | at {size_text(SUMMARY_SIZE)} | of {climb.peer} | measured |", "|---|---|---|---|---|"]
    for rung, state in zip(climb.rungs, found.states, strict=True):
        (speed,) = speeds(rung, [SUMMARY_SIZE])
        cells = (f"{rung.number} {rung.name}", rung.question, speed, share_text(rung), row_states.row_text(state))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def sizes_of(climb: Climb) -> list[Size]:
    return list(dict.fromkeys(time.size for rung in climb.rungs for time in rung.times))


def size_text(size: Size) -> str:
    """`1024` for a cube, else `5000x3000x7000`."""
    return "x".join(map(str, size if len(set(size)) > 1 else size[:1]))


def shown_size(climb: Climb) -> Size:
    """The largest of the sizes on which the most rungs were timed."""
    timed = Counter(time.size for rung in climb.rungs for time in rung.times)
    return max(timed, key=lambda size: (timed[size], prod(size)), default=())


def unit_of(climb: Climb) -> str:
    """The unit of all rates in a table: that of the fastest."""
    fastest = max((time.flops / time.time_us for rung in climb.rungs for time in rung.times), default=1e6)
    return rate_text(fastest / 1e6).partition(" ")[2]


def numbers(rung: RungOutcome, sizes: Iterable[Size], unit: str) -> list[str]:
    """The rung's rate at each size in a unit that the head of the table says; a dash where it was not timed."""
    by_size, scale = {time.size: time for time in rung.times}, _SCALES[unit]
    rates = [by_size[s].flops / by_size[s].time_us * 1e6 / scale if s in by_size else None for s in sizes]
    return ["-" if rate is None else f"{rate:#.3g}" if rate < 100 else f"{rate:,.0f}" for rate in rates]


def speeds(rung: RungOutcome, sizes: Iterable[Size]) -> list[str]:
    """The rung's rate at each size; a dash where it was not timed."""
    by_size = {time.size: time for time in rung.times}
    return [rate_text(by_size[s].flops / by_size[s].time_us / 1e6) if s in by_size else "-" for s in sizes]


def measured_text(climb: Climb, at: int) -> str:
    """`55 % of cuBLAS over 7 sizes; 7.61 ms at 5000x3000x7000, 1.70x as fast as the rung before`."""
    rung, size = climb.rungs[at], shown_size(climb)
    times = [{time.size: time.time_us for time in one.times} for one in climb.rungs[max(at - 1, 0) : at + 1]]
    said = f"{share_text(rung)} of {climb.peer} over {number_text(len(rung.times), 'size')}"
    if size in times[-1]:
        said += f"; {time_text(times[-1][size])} at {size_text(size)}"
        if at and size in times[0]:
            said += f", {times[0][size] / times[-1][size]:.2f}x as fast as the rung before"
    return said


def share_text(rung: RungOutcome) -> str:
    """Of the peer's speed, the geometric mean over the sizes that were timed."""
    return percent_text(geometric_mean(time.of_peer for time in rung.times)) if rung.times else "-"


def sentence(climb: Climb) -> str:
    """`the best rung, tuned, reaches 1.08x of torch.mm`, or how many rungs are right where none was timed."""
    timed = [rung for rung in climb.rungs if rung.times]
    if not timed:
        right = sum(rung.accepted for rung in climb.rungs)
        return f"{right} of {len(climb.rungs)} rungs are right on {climb.rungs[0].shapes} shapes"
    best = max(timed, key=lambda rung: geometric_mean(time.of_peer for time in rung.times))
    return f"the best of {len(climb.rungs)} rungs, {best.name}, has {share_text(best)} of the speed of {climb.peer}"


def _climb(climb: Climb, states: Sequence[RowState]) -> str:
    sizes = sizes_of(climb)
    head = ["rung", "question", *map(size_text, sizes), f"of {climb.peer}", "measured"]
    lines = [f"## {climb.ladder}: {format.machine_text(climb.machine)}", "", f"{row_states.measured_text(states)}.", ""]
    lines += ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for rung, state in zip(climb.rungs, states, strict=True):
        question = rung.question if rung.accepted else f"rejected: {format.plain(rung.reason)}"
        cells = [f"{rung.number} {rung.name}", question, *speeds(rung, sizes), share_text(rung)]
        cells.append(row_states.row_text(state))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _counts(counts: Sequence[RungCount]) -> str:
    if not counts:
        return ""
    lines = [
        "",
        "What emulation counts on a CPU, and ncu here: sectors of 32 bytes that a request of a warp touches, and",
        "passes over the banks of shared memory by the least that would do.",
        "",
        "| rung | | emulated | counted | apart |",
        "|---|---|---|---|---|",
    ]
    for one in counts:
        apart = percent_text(abs(one.emulated / one.counted - 1))
        lines.append(f"| {one.number} {one.name} | {one.what} | {one.emulated:.3g} | {one.counted:.3g} | {apart} |")
    return "\n".join(lines) + "\n"
