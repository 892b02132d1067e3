"""Ladder runs as Markdown, and texts on them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from math import prod
from statistics import geometric_mean
from textwrap import wrap

from kernelwright.core.evidence import RowState
from kernelwright.core.ladder import CounterComparison, LadderRun, RecordedLadderRun, RungOutcome
from kernelwright.core.units import number_text, percent_text, rate_text, time_text
from kernelwright.report import format, row_states

Size = tuple[int, ...]
_SCALES = {"PFLOP/s": 1e15, "TFLOP/s": 1e12, "GFLOP/s": 1e9, "MFLOP/s": 1e6}


def markdown(runs: Iterable[RecordedLadderRun]) -> str:
    """Return a section for each run: a table of rungs, and one of hardware counters."""
    parts = [_ladder_section(one.run, one.states) + _counter_table(one.counts) for one in runs]
    return "\n".join(parts) if parts else "No rows yet: run `kw evidence record --kind ladder`.\n"


def summary_text(recorded: RecordedLadderRun) -> str:
    """Return every third rung's fraction of the baseline as one item of a list, and the last rung's date."""
    run = recorded.run
    rungs = [rung for rung in run.rungs if rung.number % 3 == 1 or rung is run.rungs[-1]]
    shares = ", ".join(f"{baseline_share_text(rung)} ({rung.number} {rung.name})" for rung in rungs)
    text = f"- {run.ladder}: {shares} of {run.baseline}; measured {row_states.row_state_text(recorded.states[-1])}."
    return "\n".join(wrap(text, 118, subsequent_indent="  ", break_on_hyphens=False)) + "\n"


def timed_sizes(run: LadderRun) -> list[Size]:
    """Return all sizes on which a rung was timed, in order of first use."""
    return list(dict.fromkeys(time.size for rung in run.rungs for time in rung.times))


def size_text(size: Size) -> str:
    """`1024` for a cube, else `5000x3000x7000`."""
    return "x".join(map(str, size if len(set(size)) > 1 else size[:1]))


def representative_size(run: LadderRun) -> Size:
    """Return the largest of the sizes on which the most rungs were timed."""
    timed = Counter(time.size for rung in run.rungs for time in rung.times)
    return max(timed, key=lambda size: (timed[size], prod(size)), default=())


def rate_unit(run: LadderRun) -> str:
    """Return the unit for all rates of a table: that of the fastest."""
    fastest = max((time.flops / time.time_us for rung in run.rungs for time in rung.times), default=1e6)
    return rate_text(fastest / 1e6).partition(" ")[2]


def rate_numbers(rung: RungOutcome, sizes: Iterable[Size], unit: str) -> list[str]:
    """Return the rung's rate at each size as a number in `unit`; a dash if not timed."""
    by_size, scale = {time.size: time for time in rung.times}, _SCALES[unit]
    rates = [by_size[s].flops / by_size[s].time_us * 1e6 / scale if s in by_size else None for s in sizes]
    return ["-" if rate is None else f"{rate:#.3g}" if rate < 100 else f"{rate:,.0f}" for rate in rates]


def rate_texts(rung: RungOutcome, sizes: Iterable[Size]) -> list[str]:
    """Return the rung's rate at each size with its unit; a dash if not timed."""
    by_size = {time.size: time for time in rung.times}
    return [rate_text(by_size[s].flops / by_size[s].time_us / 1e6) if s in by_size else "-" for s in sizes]


def rung_timing_text(run: LadderRun, index: int) -> str:
    """`55 % of cuBLAS over 7 sizes; 7.61 ms at 5000x3000x7000, speedup 1.70x over the previous rung`."""
    rung, size = run.rungs[index], representative_size(run)
    times = [{time.size: time.time_us for time in one.times} for one in run.rungs[max(index - 1, 0) : index + 1]]
    text = f"{baseline_share_text(rung)} of {run.baseline} over {number_text(len(rung.times), 'size')}"
    if size in times[-1]:
        text += f"; {time_text(times[-1][size])} at {size_text(size)}"
        if index and size in times[0]:
            text += f", speedup {times[0][size] / times[-1][size]:.2f}x over the previous rung"
    return text


def baseline_share_text(rung: RungOutcome) -> str:
    """Return the speed relative to the baseline: the geometric mean over all timed sizes."""
    return percent_text(geometric_mean(time.fraction_of_baseline for time in rung.times)) if rung.times else "-"


def ladder_summary(run: LadderRun) -> str:
    """`best of 12 rungs: tuned, 97 % of cuBLAS`, or the number of verified rungs if none was timed."""
    timed = [rung for rung in run.rungs if rung.times]
    if not timed:
        accepted = sum(rung.accepted for rung in run.rungs)
        return f"{accepted} of {len(run.rungs)} rungs verified on {run.rungs[0].num_shapes} shapes"
    best = max(timed, key=lambda rung: geometric_mean(time.fraction_of_baseline for time in rung.times))
    return f"best of {len(run.rungs)} rungs: {best.name}, {baseline_share_text(best)} of {run.baseline}"


def _ladder_section(run: LadderRun, states: Sequence[RowState]) -> str:
    sizes = timed_sizes(run)
    head = ["rung", "question", *map(size_text, sizes), f"of {run.baseline}", "measured"]
    lines = [f"## {run.ladder}: {format.machine_text(run.machine)}", "", f"{row_states.dates_text(states)}.", ""]
    lines += ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for rung, state in zip(run.rungs, states, strict=True):
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
        "Counts by emulation on a CPU and by ncu on this machine: 32-byte sectors per request of a warp, and",
        "wavefronts of shared memory over the minimum.",
        "",
        "| rung | metric | emulated | measured | difference |",
        "|---|---|---|---|---|",
    ]
    for one in counts:
        difference = percent_text(abs(one.emulated / one.counted - 1))
        cells = (f"{one.number} {one.name}", one.metric, f"{one.emulated:.3g}", f"{one.counted:.3g}", difference)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"
