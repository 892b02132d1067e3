"""Results of a suite of optimised programs per machine: summary numbers, texts and tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import geometric_mean

from kernelwright.core.evidence import RowGroup
from kernelwright.core.optimization import WHOLE_PROGRAM_PREFIX, ProgramSuiteRow
from kernelwright.core.record import Record
from kernelwright.core.units import bytes_text, number_text, time_text
from kernelwright.report import format, row_states

OURS, COPY, TORCH_COMPILE, EAGER = "kernelwright", "copy", "torch.compile", "eager"
LARGE_BYTES = 50_000_000
"""Programs that move fewer bytes stay in the last-level cache of a GPU, so that a copy is no reference."""
SLOWER_BELOW_RATIO, SLOWER_ABOVE_US = 0.98, 2.0
"""A program is slower below this speedup and above this difference, which exceeds the noise of a launch."""
COLUMNS = ("program", "bytes", "floor", "ours", "copy", "torch.compile", "eager",
        "ours / copy", "speedup over torch.compile", "speedup over eager", "winner", "measured")  # fmt: skip


class ProgramSuiteSummary(Record, frozen=True, kw_only=True):
    """Geometric means over the accepted programs; None if nothing was timed.

    `time_over_copy` is our time over that of a copy of the same bytes, `time_over_copy_large` the same for the `large`
    programs of 50 MB and more; `slower_than_*` counts programs that are slower than the baseline; `fast_1_*` is
    KernelBench's fast_1, the fraction of all programs that are correct and faster than the baseline by any amount.
    """

    programs: int
    accepted: int
    large: int
    time_over_copy: float | None
    time_over_copy_large: float | None
    speedup_over_compile: float | None
    speedup_over_eager: float | None
    slower_than_compile: int
    slower_than_eager: int
    fast_1_over_compile: float
    fast_1_over_eager: float


def summarize_rows(rows: Sequence[ProgramSuiteRow]) -> ProgramSuiteSummary:
    """Summarize the rows; a program that was not accepted only counts as a program."""
    accepted = [row for row in rows if row.accepted and OURS in row.times_us]
    large = [row for row in accepted if row.compulsory_bytes >= LARGE_BYTES]
    return ProgramSuiteSummary(
        programs=len(rows),
        accepted=sum(row.accepted for row in rows),
        large=len(large),
        time_over_copy=_geometric_mean(_time_over_copy(row) for row in accepted),
        time_over_copy_large=_geometric_mean(_time_over_copy(row) for row in large),
        speedup_over_compile=_geometric_mean(_speedup(row, TORCH_COMPILE) for row in accepted),
        speedup_over_eager=_geometric_mean(_speedup(row, EAGER) for row in accepted),
        slower_than_compile=sum(is_slower(row, TORCH_COMPILE) for row in accepted),
        slower_than_eager=sum(is_slower(row, EAGER) for row in accepted),
        fast_1_over_compile=_fast_1(rows, TORCH_COMPILE),
        fast_1_over_eager=_fast_1(rows, EAGER),
    )


def is_slower(row: ProgramSuiteRow, other: str) -> bool:
    """Whether our program is slower than another variant by more than the noise."""
    if not {OURS, other} <= row.times_us.keys():
        return False
    return row.speedup_over(other) < SLOWER_BELOW_RATIO and row.times_us[OURS] - row.times_us[other] > SLOWER_ABOVE_US


def summary_lines(rows: Sequence[ProgramSuiteRow]) -> list[tuple[str, str]]:
    """Return the summary as labels and texts: `speedup over torch.compile`, `1.18x; 8 programs are slower`."""
    summary = summarize_rows(rows)
    programs = f"{number_text(summary.large, 'program')} of {bytes_text(LARGE_BYTES)} or more"
    large = f"; {format.factor_text(summary.time_over_copy_large)} for {programs}" if summary.large else ""
    fast_1 = f"{summary.fast_1_over_eager:.2f} over eager, {summary.fast_1_over_compile:.2f} over torch.compile"
    return [
        ("programs", f"{summary.programs:,}, {summary.accepted:,} accepted"),
        ("time over copy time", format.factor_text(summary.time_over_copy) + large),
        ("speedup over torch.compile", _speedup_text(summary.speedup_over_compile, summary.slower_than_compile)),
        ("speedup over eager", _speedup_text(summary.speedup_over_eager, summary.slower_than_eager)),
        ("fast_1", fast_1),
    ]


def winners_text(row: ProgramSuiteRow) -> str:
    """Count the winners of the regions: `2 kernels, 1 torch.compile`; the reason if the program was rejected."""
    if not row.accepted:
        return f"rejected: {format.sanitize_line(row.reason)}"
    for line in row.winners:
        if line.startswith(WHOLE_PROGRAM_PREFIX):
            return f"whole program: {line.removeprefix(WHOLE_PROGRAM_PREFIX)}"
    counts = Counter(_winner(line) for line in row.winners)
    kernels = [number_text(counts.pop("kernel"), "kernel")] if "kernel" in counts else []
    return ", ".join([*kernels, *(f"{count} {name}" for name, count in sorted(counts.items()))]) or "no regions"


def markdown(entries: Iterable[RowGroup]) -> str:
    """Return a section for each machine, with its summary and a table of all programs."""
    parts = [_machine_section(entry) for entry in entries]
    return "\n".join(parts) if parts else "No rows yet: run `kw evidence record --kind optimize`.\n"


def summary_table(entries: Iterable[RowGroup]) -> str:
    """Return a table with a row for each machine and suite: mean speedups, slower programs, time over a copy."""
    if not (entries := list(entries)):
        return "No current rows: run `kw evidence refresh --kind optimize`.\n"
    lines = [
        "| machine | programs | accepted | speedup over eager | speedup over torch.compile | "
        "slower than torch.compile | time over copy time | measured |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for entry in entries:
        summary = summarize_rows(entry.results)
        name = entry.machine if entry.name == "suite" else f"{entry.machine}, {entry.name}"
        ratios = map(format.factor_text, (summary.speedup_over_eager, summary.speedup_over_compile))
        over_copy = format.factor_text(summary.time_over_copy)
        if 0 < summary.large < summary.programs:
            over_copy += f"; {format.factor_text(summary.time_over_copy_large)} for {bytes_text(LARGE_BYTES)} or more"
        counts = (str(summary.programs), str(summary.accepted))
        cells = [name, *counts, *ratios, str(summary.slower_than_compile), over_copy]
        cells.append(row_states.dates_text(entry.states))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, *row_states.reason_lines(entries)]) + "\n"


def _machine_section(entry: RowGroup) -> str:
    software = ", ".join(f"{name} {version}" for name, version in sorted(entry.environment.items()))
    name = "" if entry.name == "suite" else f": {entry.name}"
    head = [
        f"## {entry.machine}{name}",
        "",
        format.sanitize_line(f"{row_states.dates_text(entry.states)}; {software}."),
        "",
    ]
    summary = [f"- {label}: {text}" for label, text in summary_lines(entry.results)]
    table = ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    pairs = zip(entry.results, entry.states, strict=True)
    rows = ([*_cells(row), row_states.row_state_text(state)] for row, state in pairs)
    table += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join([*head, *summary, "", *table]) + "\n"


def _cells(row: ProgramSuiteRow) -> list[str]:
    if not row.times_us:
        return [row.name, *[""] * (len(COLUMNS) - 3), winners_text(row)]
    variants = (OURS, COPY, TORCH_COMPILE, EAGER)
    times = [time_text(row.times_us[one]) if one in row.times_us else "-" for one in variants]
    ratios = [
        format.factor_text(ratio)
        for ratio in (_time_over_copy(row), _speedup(row, TORCH_COMPILE), _speedup(row, EAGER))
    ]
    return [row.name, bytes_text(row.compulsory_bytes), time_text(row.floor_us), *times, *ratios, winners_text(row)]


def _time_over_copy(row: ProgramSuiteRow) -> float | None:
    return row.times_us[OURS] / row.times_us[COPY] if COPY in row.times_us else None


def _speedup(row: ProgramSuiteRow, other: str) -> float | None:
    return row.speedup_over(other) if other in row.times_us else None


def _geometric_mean(ratios: Iterable[float | None]) -> float | None:
    known = [ratio for ratio in ratios if ratio]
    return geometric_mean(known) if known else None


def _fast_1(rows: Sequence[ProgramSuiteRow], other: str) -> float:
    return sum(row.accepted and (_speedup(row, other) or 0.0) > 1 for row in rows) / max(len(rows), 1)


def _speedup_text(mean: float | None, slower: int) -> str:
    slower_text = (
        f"{number_text(slower, 'program')} {'is' if slower == 1 else 'are'} slower" if slower else "none is slower"
    )
    return "-" if mean is None else f"{format.factor_text(mean)}; {slower_text}"


def _winner(line: str) -> str:
    """`region_0: torch.compile, 1.10x faster ...` -> `torch.compile`; a config is a `kernel`."""
    name = line.partition(": ")[2].partition(",")[0]
    return name if name in ("torch", TORCH_COMPILE) else "kernel"
