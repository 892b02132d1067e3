"""`torch.compile(model, backend="kernelwright")` on the example models: a line against its targets, and a table."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import geometric_mean

from kernelwright.core.backend_run import BackendRun
from kernelwright.core.evidence import RowGroup
from kernelwright.core.median_times import EAGER, OURS, TORCH_COMPILE
from kernelwright.core.record import Record
from kernelwright.core.units import number_text
from kernelwright.report import markdown_tables, row_states
from kernelwright.report.format import factor_text

MIN_OVER_EAGER, MIN_OVER_COMPILE, MAX_FIRST_CALL_RATIO = 0.95, 1.0, 3.0
"""Targets: of the slowest model, of the geometric mean, of the longest first call."""
COLUMNS = ("model", EAGER, TORCH_COMPILE, "ours", f"over {EAGER}", f"over {TORCH_COMPILE}",
        f"first call: {TORCH_COMPILE}", "first call: ours", "ratio", "results", "measured")  # fmt: skip


class BackendSummary(Record, frozen=True, kw_only=True):
    """Numbers of all measured models on one machine.

    Attributes:
        over_eager, over_compile: geometric means of the speedups.
        slowest, slowest_over_eager: the model with the least speedup over eager.
        longest, first_call_ratio: the model whose first call is longest in proportion to inductor's.
    """

    models: int
    over_eager: float
    over_compile: float
    slowest: str
    slowest_over_eager: float
    longest: str
    first_call_ratio: float


def summarize_runs(runs: Sequence[BackendRun]) -> BackendSummary | None:
    """Summarize the measured models of one machine; None without any."""
    measured = [run for run in runs if run.accepted]
    over_eager = {run.name: ratio for run in measured if (ratio := run.speedup_over(EAGER))}
    over_compile = [ratio for run in measured if (ratio := run.speedup_over(TORCH_COMPILE))]
    first_calls = {run.name: ratio for run in measured if (ratio := run.first_call_ratio)}
    if not (over_eager and over_compile and first_calls):
        return None
    slowest = min(over_eager, key=over_eager.__getitem__)
    longest = max(first_calls, key=first_calls.__getitem__)
    return BackendSummary(
        models=len(measured),
        over_eager=geometric_mean(over_eager.values()),
        over_compile=geometric_mean(over_compile),
        slowest=slowest,
        slowest_over_eager=over_eager[slowest],
        longest=longest,
        first_call_ratio=first_calls[longest],
    )


def markdown(entries: Iterable[RowGroup]) -> str:
    """Return a section for each machine: its summary against the targets, and a table of all models."""
    parts = [_machine_section(entry) for entry in entries]
    return "\n".join(parts) if parts else "No rows yet: run `kw evidence record --kind backend`.\n"


def summary_text(runs: Sequence[BackendRun]) -> str:
    """One line: geometric means, the slowest model and the longest first call, each with its target."""
    failed = [run.name for run in runs if not run.accepted]
    failures = f" {number_text(len(failed), 'model')} failed: {', '.join(failed)}." if failed else ""
    summary = summarize_runs(runs)
    if summary is None:
        return f"No model was measured.{failures}"
    over_compile = _target_text(summary.over_compile, at_least=MIN_OVER_COMPILE)
    slowest = _target_text(summary.slowest_over_eager, at_least=MIN_OVER_EAGER)
    longest = _target_text(summary.first_call_ratio, at_most=MAX_FIRST_CALL_RATIO)
    return (
        f"{number_text(summary.models, 'model')}: geometric mean {factor_text(summary.over_eager)} over eager, "
        f"{over_compile} over torch.compile; slowest against eager {slowest}, {summary.slowest}; longest first call "
        f"{longest} that of torch.compile, {summary.longest}.{failures}"
    )


def _target_text(ratio: float, *, at_least: float = -math.inf, at_most: float = math.inf) -> str:
    """`1.12x (target: at least 1.00x, met)`."""
    target = f"at least {factor_text(at_least)}" if at_most == math.inf else f"at most {factor_text(at_most)}"
    return f"{factor_text(ratio)} (target: {target}, {'met' if at_least <= ratio <= at_most else 'not met'})"


def _machine_section(entry: RowGroup) -> str:
    pairs = sorted(zip(entry.results, entry.states, strict=True), key=lambda pair: pair[0].name)
    table = markdown_tables.table_lines(
        COLUMNS, [(*_cells(run), row_states.row_state_text(state)) for run, state in pairs]
    )
    head = [*markdown_tables.head_lines(entry), summary_text([run for run, _ in pairs]), ""]
    return "\n".join([*head, *table, *row_states.reason_lines([entry])]) + "\n"


def _cells(run: BackendRun) -> list[str]:
    return [
        run.name,
        *(markdown_tables.median_text(run.times.get(name)) for name in (EAGER, TORCH_COMPILE, OURS)),
        factor_text(run.speedup_over(EAGER)),
        factor_text(run.speedup_over(TORCH_COMPILE)),
        *(f"{run.first_call_s[name]:.1f} s" if name in run.first_call_s else "-" for name in (TORCH_COMPILE, OURS)),
        factor_text(run.first_call_ratio),
        "correct" if run.accepted else f"{run.reason}: {run.detail}",
    ]
