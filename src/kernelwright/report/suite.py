"""What a suite of optimised programs says of a machine: the summary in numbers and in words, and the page of all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import geometric_mean

from kernelwright.core.evidence import RowGroup
from kernelwright.core.optimization import WHOLE_PROGRAM_PREFIX, ProgramSuiteRow
from kernelwright.core.records import Record
from kernelwright.core.units import bytes_text, number_text, time_text
from kernelwright.report import format, row_states

OURS, COPY, TORCH_COMPILE, EAGER = "kernelwright", "copy", "torch.compile", "eager"
LARGE_BYTES = 50_000_000
"""What moves less stays in the last cache of a GPU, where a copy is no measure."""
SLOWER_BELOW_RATIO, SLOWER_ABOVE_US = 0.98, 2.0
"""Slower than another way: below this share of its speed, and by more microseconds than a launch wavers."""
COLUMNS = ("program", "bytes", "floor", "ours", "copy", "torch.compile", "eager",
        "ours / copy", "faster than torch.compile", "faster than eager", "who won", "measured")  # fmt: skip


class ProgramSuiteSummary(Record, frozen=True, kw_only=True):
    """Geometric means over the accepted programs; None where nothing was timed.

    `time_over_copy` is our time over that of a copy of the same bytes, `time_over_copy_large` the same for the `large`
    programs of 50 MB and more; `slower_than_*` counts the programs that would have been better off the other way;
    `fast_*` is KernelBench's fast_1, the share of all programs that are right and faster than the other way by any
    amount.
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
    """The rows in eleven numbers; what was not accepted counts as a program and nowhere else."""
    good = [row for row in rows if row.accepted and OURS in row.times_us]
    large = [row for row in good if row.compulsory_bytes >= LARGE_BYTES]
    return ProgramSuiteSummary(
        programs=len(rows),
        accepted=sum(row.accepted for row in rows),
        large=len(large),
        time_over_copy=_geometric_mean(_time_over_copy(row) for row in good),
        time_over_copy_large=_geometric_mean(_time_over_copy(row) for row in large),
        speedup_over_compile=_geometric_mean(_speedup(row, TORCH_COMPILE) for row in good),
        speedup_over_eager=_geometric_mean(_speedup(row, EAGER) for row in good),
        slower_than_compile=sum(is_slower(row, TORCH_COMPILE) for row in good),
        slower_than_eager=sum(is_slower(row, EAGER) for row in good),
        fast_1_over_compile=_fast_1(rows, TORCH_COMPILE),
        fast_1_over_eager=_fast_1(rows, EAGER),
    )


def is_slower(row: ProgramSuiteRow, other: str) -> bool:
    """Whether another arm is faster by more than the noise."""
    if not {OURS, other} <= row.times_us.keys():
        return False
    return row.speedup_over(other) < SLOWER_BELOW_RATIO and row.times_us[OURS] - row.times_us[other] > SLOWER_ABOVE_US


def summary_lines(rows: Sequence[ProgramSuiteRow]) -> list[tuple[str, str]]:
    """The summary as label and text: `faster than torch.compile`, `1.18x; 8 programs are slower`."""
    found = summarize_rows(rows)
    which = f"the {found.large:,} of {bytes_text(LARGE_BYTES)} and more"
    large = f"; {format.factor_text(found.time_over_copy_large)} over {which}"
    return [
        ("programs", f"{found.programs:,}, {found.accepted:,} accepted"),
        ("time over that of a copy", format.factor_text(found.time_over_copy) + (large if found.large else "")),
        ("faster than torch.compile", _speedup_text(found.speedup_over_compile, found.slower_than_compile)),
        ("faster than eager", _speedup_text(found.speedup_over_eager, found.slower_than_eager)),
        (
            "fast_1",
            f"{found.fast_1_over_eager:.2f} against eager, {found.fast_1_over_compile:.2f} against torch.compile",
        ),
    ]


def winners_text(row: ProgramSuiteRow) -> str:
    """Who computes the regions: `2 kernels, 1 torch.compile`; the reason where the program was rejected."""
    if not row.accepted:
        return f"rejected: {format.sanitize_line(row.reason)}"
    for line in row.winners:
        if line.startswith(WHOLE_PROGRAM_PREFIX):
            return f"as a whole {line.removeprefix(WHOLE_PROGRAM_PREFIX)}"
    counts = Counter(_winner(line) for line in row.winners)
    made = [number_text(counts.pop("kernel"), "kernel")] if "kernel" in counts else []
    return ", ".join([*made, *(f"{count} {name}" for name, count in sorted(counts.items()))]) or "no regions"


def markdown(entries: Iterable[RowGroup]) -> str:
    """Every machine with its summary and the table of all its programs."""
    parts = [_machine_section(entry) for entry in entries]
    return "\n".join(parts) if parts else "No machine has a row yet: `kw evidence record --kind optimize`.\n"


def summary_table(entries: Iterable[RowGroup]) -> str:
    """A row for each machine and suite: how many times faster, how many programs are slower, how near to a copy."""
    if not (entries := list(entries)):
        return "No row is current: `kw evidence refresh --kind optimize`.\n"
    lines = [
        "| machine | programs | accepted | faster than eager | faster than torch.compile | slower than torch.compile | "
        "time over that of a copy | measured |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for entry in entries:
        found = summarize_rows(entry.results)
        name = entry.machine if entry.name == "suite" else f"{entry.machine}, {entry.name}"
        ratios = map(format.factor_text, (found.speedup_over_eager, found.speedup_over_compile))
        over = format.factor_text(found.time_over_copy)
        if 0 < found.large < found.programs:
            over += f"; {format.factor_text(found.time_over_copy_large)} from {bytes_text(LARGE_BYTES)} on"
        cells = [name, str(found.programs), str(found.accepted), *ratios, str(found.slower_than_compile), over]
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
    said = [f"- {label}: {text}" for label, text in summary_lines(entry.results)]
    table = ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    pairs = zip(entry.results, entry.states, strict=True)
    rows = ([*_cells(row), row_states.row_state_text(state)] for row, state in pairs)
    table += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join([*head, *said, "", *table]) + "\n"


def _cells(row: ProgramSuiteRow) -> list[str]:
    if not row.times_us:
        return [row.name, *[""] * (len(COLUMNS) - 3), winners_text(row)]
    times = [time_text(row.times_us[arm]) if arm in row.times_us else "-" for arm in (OURS, COPY, TORCH_COMPILE, EAGER)]
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
    worse = f"{number_text(slower, 'program')} {'is' if slower == 1 else 'are'} slower" if slower else "none is slower"
    return "-" if mean is None else f"{format.factor_text(mean)}; {worse}"


def _winner(line: str) -> str:
    """`region_0: torch.compile, 1.10x faster ...` -> `torch.compile`; a choice of a generator is a kernel."""
    way = line.partition(": ")[2].partition(",")[0]
    return way if way in ("torch", TORCH_COMPILE) else "kernel"
