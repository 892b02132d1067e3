"""Climbs as Markdown: each ladder on each machine, rung by rung."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from math import prod
from statistics import geometric_mean

from kernelwright.core.evidence import RowState
from kernelwright.core.ladder import CounterComparison, LadderRun, RecordedLadderRun, RungOutcome
from kernelwright.core.units import number_text, percent_text, rate_text, time_text
from kernelwright.report import format, row_states

Size = tuple[int, ...]
_SCALES = {"PFLOP/s": 1e15, "TFLOP/s": 1e12, "GFLOP/s": 1e9, "MFLOP/s": 1e6}


def markdown(climbs: Iterable[RecordedLadderRun]) -> str:
    """A heading and a table for each, and what counters said of its rungs."""
    parts = [_ladder_section(one.run, one.states) + _counter_table(one.counts) for one in climbs]
    return "\n".join(parts) if parts else "No ladder has a row yet: `kw evidence record --kind ladder`.\n"


SUMMARY_SIZE = (4096, 4096, 4096)


def summary_table(found: RecordedLadderRun) -> str:
    """A short table: each rung's question, rate at `SUMMARY_SIZE`, share of the peer over all sizes, and date."""
    climb = found.run
    lines = [
        f"| rung | asks | at {size_text(SUMMARY_SIZE)} | of {climb.baseline} | measured |",
        "|---|---|---|---|---|",
    ]
    for rung, state in zip(climb.rungs, found.states, strict=True):
        (speed,) = rate_texts(rung, [SUMMARY_SIZE])
        cells = (
            f"{rung.number} {rung.name}",
            rung.question,
            speed,
            baseline_share_text(rung),
            row_states.row_state_text(state),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def timed_sizes(climb: LadderRun) -> list[Size]:
    return list(dict.fromkeys(time.size for rung in climb.rungs for time in rung.times))


def size_text(size: Size) -> str:
    """`1024` for a cube, else `5000x3000x7000`."""
    return "x".join(map(str, size if len(set(size)) > 1 else size[:1]))


def representative_size(climb: LadderRun) -> Size:
    """The largest of the sizes on which the most rungs were timed."""
    timed = Counter(time.size for rung in climb.rungs for time in rung.times)
    return max(timed, key=lambda size: (timed[size], prod(size)), default=())


def rate_unit(climb: LadderRun) -> str:
    """The unit of all rates in a table: that of the fastest."""
    fastest = max((time.flops / time.time_us for rung in climb.rungs for time in rung.times), default=1e6)
    return rate_text(fastest / 1e6).partition(" ")[2]


def rate_numbers(rung: RungOutcome, sizes: Iterable[Size], unit: str) -> list[str]:
    """The rung's rate at each size in a unit that the head of the table says; a dash where it was not timed."""
    by_size, scale = {time.size: time for time in rung.times}, _SCALES[unit]
    rates = [by_size[s].flops / by_size[s].time_us * 1e6 / scale if s in by_size else None for s in sizes]
    return ["-" if rate is None else f"{rate:#.3g}" if rate < 100 else f"{rate:,.0f}" for rate in rates]


def rate_texts(rung: RungOutcome, sizes: Iterable[Size]) -> list[str]:
    """The rung's rate at each size; a dash where it was not timed."""
    by_size = {time.size: time for time in rung.times}
    return [rate_text(by_size[s].flops / by_size[s].time_us / 1e6) if s in by_size else "-" for s in sizes]


def rung_timing_text(climb: LadderRun, index: int) -> str:
    """`55 % of cuBLAS over 7 sizes; 7.61 ms at 5000x3000x7000, 1.70x as fast as the rung before`."""
    rung, size = climb.rungs[index], representative_size(climb)
    times = [{time.size: time.time_us for time in one.times} for one in climb.rungs[max(index - 1, 0) : index + 1]]
    said = f"{baseline_share_text(rung)} of {climb.baseline} over {number_text(len(rung.times), 'size')}"
    if size in times[-1]:
        said += f"; {time_text(times[-1][size])} at {size_text(size)}"
        if index and size in times[0]:
            said += f", {times[0][size] / times[-1][size]:.2f}x as fast as the rung before"
    return said


def baseline_share_text(rung: RungOutcome) -> str:
    """Of the peer's speed, the geometric mean over the sizes that were timed."""
    return percent_text(geometric_mean(time.fraction_of_baseline for time in rung.times)) if rung.times else "-"


def ladder_summary(climb: LadderRun) -> str:
    """`the best rung, tuned, reaches 1.08x of torch.mm`, or how many rungs are right where none was timed."""
    timed = [rung for rung in climb.rungs if rung.times]
    if not timed:
        right = sum(rung.accepted for rung in climb.rungs)
        return f"{right} of {len(climb.rungs)} rungs are right on {climb.rungs[0].num_shapes} shapes"
    best = max(timed, key=lambda rung: geometric_mean(time.fraction_of_baseline for time in rung.times))
    return (
        f"the best of {len(climb.rungs)} rungs, {best.name}, has {baseline_share_text(best)} of the "
        f"speed of {climb.baseline}"
    )


def _ladder_section(climb: LadderRun, states: Sequence[RowState]) -> str:
    sizes = timed_sizes(climb)
    head = ["rung", "question", *map(size_text, sizes), f"of {climb.baseline}", "measured"]
    lines = [f"## {climb.ladder}: {format.machine_text(climb.machine)}", "", f"{row_states.dates_text(states)}.", ""]
    lines += ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for rung, state in zip(climb.rungs, states, strict=True):
        question = rung.question if rung.accepted else f"rejected: {format.sanitize_line(rung.reason)}"
        cells = [f"{rung.number} {rung.name}", question, *rate_texts(rung, sizes), baseline_share_text(rung)]
        cells.append(row_states.row_state_text(state))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _counter_table(counts: Sequence[CounterComparison]) -> str:
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
        lines.append(f"| {one.number} {one.name} | {one.metric} | {one.emulated:.3g} | {one.counted:.3g} | {apart} |")
    return "\n".join(lines) + "\n"
