"""`kw optimize` on the sample of KernelBench problems: summary numbers, each with its target, and tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import geometric_mean, median
from typing import NamedTuple

from kernelwright.core.evidence import RowGroup
from kernelwright.core.kernelbench import SAMPLE_SIZE, ProblemRun, problem_number
from kernelwright.core.median_times import EAGER, OURS, TORCH_COMPILE
from kernelwright.core.record import Record
from kernelwright.core.units import number_text
from kernelwright.report import format, markdown_tables, row_states

SLOWER_BELOW_RATIO = 0.98
MAX_MEDIAN_S, MAX_WALL_S = 60.0, 150.0
MIN_SPEEDUP, MIN_FAST_1 = 1.25, 0.85
COLUMNS = ("problem", "seconds", "ours", TORCH_COMPILE, EAGER, "over torch.compile", "over the best", "file runs",
        "kernels", "not tried", "measured")  # fmt: skip


class SampleSummary(Record, frozen=True, kw_only=True):
    """Numbers of a sample on one machine; None where nothing was measured.

    Attributes:
        problems: with a row; `accepted` of them were accepted, `untimed` of these have no times to compare.
        median_s, longest_s: of `kw optimize`, over all problems.
        speedup_over_compile, speedup_over_best: geometric means over the accepted problems; the best is the faster one
            of eager and torch.compile.
        slower: problems below 0.98x the best.
        fast_1: KernelBench's, over torch.compile: the fraction of the whole sample that is accepted and faster by any
            amount; a problem without a row counts as not faster.
    """

    problems: int
    accepted: int
    untimed: int
    median_s: float | None
    longest_s: float | None
    speedup_over_compile: float | None
    speedup_over_best: float | None
    slower: int
    fast_1: float


class _Target(NamedTuple):
    """A number of the summary with the target for it; `is_met` is None for a number without one."""

    label: str
    text: str
    target: str = ""
    is_met: bool | None = None


def summarize_runs(runs: Sequence[ProblemRun]) -> SampleSummary:
    """Summarize the runs of one machine; means and slower problems are those of the accepted ones."""
    accepted = [run for run in runs if run.accepted]
    over_compile = _known(run.speedup_over(TORCH_COMPILE) for run in accepted)
    over_best = _known(run.speedup_over(TORCH_COMPILE, EAGER) for run in accepted)
    return SampleSummary(
        problems=len(runs),
        accepted=len(accepted),
        untimed=len(accepted) - len(over_best),
        median_s=median(run.wall_s for run in runs) if runs else None,
        longest_s=max((run.wall_s for run in runs), default=None),
        speedup_over_compile=geometric_mean(over_compile) if over_compile else None,
        speedup_over_best=geometric_mean(over_best) if over_best else None,
        slower=sum(ratio < SLOWER_BELOW_RATIO for ratio in over_best),
        fast_1=sum(ratio > 1 for ratio in over_compile) / SAMPLE_SIZE,
    )


def markdown(entries: Iterable[RowGroup]) -> str:
    """Return a section for each machine: its summary against the targets, and a table of all problems."""
    parts = [_machine_section(entry) for entry in entries]
    return "\n".join(parts) if parts else "No rows yet: run `kw evidence record --kind kernelbench --suite DIR`.\n"


def _targets(summary: SampleSummary) -> list[_Target]:
    missing = SAMPLE_SIZE - summary.problems
    count = f"{summary.accepted} of {SAMPLE_SIZE}" + (f", {missing} not measured" if missing else "")
    slower = number_text(summary.slower, "problem") if summary.slower else "none"
    slower += f", {summary.untimed} not timed" if summary.untimed else ""
    return [
        _Target("accepted", count, "all", summary.accepted == SAMPLE_SIZE),
        _limited("median time of `kw optimize`", summary.median_s, _seconds, at_most=MAX_MEDIAN_S),
        _limited("longest time", summary.longest_s, _seconds, at_most=MAX_WALL_S),
        _limited("speedup over torch.compile", summary.speedup_over_compile, format.factor_text, at_least=MIN_SPEEDUP),
        _Target("speedup over the best of eager and torch.compile", format.factor_text(summary.speedup_over_best)),
        _Target(
            f"below {SLOWER_BELOW_RATIO}x the best of eager and torch.compile",
            slower,
            "none",
            summary.slower == summary.untimed == 0 and summary.accepted > 0,
        ),
        _limited("fast_1 over torch.compile", summary.fast_1, "{:.2f}".format, at_least=MIN_FAST_1),
    ]


def _limited(
    label: str,
    value: float | None,
    to_text: Callable[[float], str],
    *,
    at_most: float | None = None,
    at_least: float | None = None,
) -> _Target:
    target = f"at most {to_text(at_most)}" if at_most is not None else f"at least {to_text(at_least or 0.0)}"
    if value is None:
        return _Target(label, "-", target, False)
    is_met = value <= at_most if at_most is not None else value >= (at_least or 0.0)
    return _Target(label, to_text(value), target, is_met)


def _machine_section(entry: RowGroup) -> str:
    pairs = sorted(zip(entry.results, entry.states, strict=True), key=lambda pair: problem_number(pair[0].name))
    met = "met" if len(entry.results) == SAMPLE_SIZE else "met so far"
    targets = _targets(summarize_runs(entry.results))
    summary = markdown_tables.table_lines(
        ("", "measured", "target", ""),
        [(one.label, one.text, one.target, {True: met, False: "not met", None: ""}[one.is_met]) for one in targets],
    )
    rows = [(*_cells(run), row_states.row_state_text(state)) for run, state in pairs]
    table = markdown_tables.table_lines(COLUMNS, rows)
    head, notes = markdown_tables.head_lines(entry), row_states.reason_lines([entry])
    return "\n".join([*head, *summary, "", *table, *notes]) + "\n"


def _cells(run: ProblemRun) -> list[str]:
    file_runs = run.winner if run.accepted else f"rejected: {run.reason}: {run.detail}".rstrip(": ")
    kernels = f"{run.num_kernels} of {number_text(run.num_regions, 'region')}" if run.num_regions else "-"
    return [
        run.name,
        f"{run.wall_s:.0f}",
        *(markdown_tables.median_text(run.times.get(name)) for name in (OURS, TORCH_COMPILE, EAGER)),
        format.factor_text(run.speedup_over(TORCH_COMPILE)),
        format.factor_text(run.speedup_over(TORCH_COMPILE, EAGER)),
        file_runs,
        kernels,
        ", ".join(run.left_out),
    ]


def _seconds(value: float) -> str:
    return f"{value:.0f} s"


def _known(ratios: Iterable[float | None]) -> list[float]:
    return [ratio for ratio in ratios if ratio is not None]
