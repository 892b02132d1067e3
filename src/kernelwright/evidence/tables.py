"""Renders rows of evidence as tables and writes them into their pages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import median

import msgspec

from kernelwright.core.corpus import SampleCounts
from kernelwright.core.errors import NotFoundError
from kernelwright.core.evidence import EvidenceRow, RowGroup, RowState
from kernelwright.core.ladder import RecordedLadderRun, RungResult
from kernelwright.core.units import percent_text, time_text
from kernelwright.evidence.kinds import KIND_MODULES, get_kind
from kernelwright.evidence.rows import DEFAULT_FOLDER, read_rows
from kernelwright.evidence.status import compute_status
from kernelwright.ladders import ladder_device, ladder_names
from kernelwright.report import backend, corpus, fragments, kernelbench, kernels, ladders, row_states, suite

TABLE_START = "<!-- below: written by kw evidence table -->"
TABLE_END = "<!-- above: written by kw evidence table -->"
SUMMARY_SUFFIX = " summary"
PAGES = {
    "diagnosis": "docs/regimes.md",
    "optimize": "docs/optimize-suite.md",
    "layout": "docs/fragments.md",
    "ladder": "docs/ladders.md",
    "kernel": "docs/kernels.md",
    "redteam": "docs/corpus.md",
    "kernelbench": "docs/kernelbench.md",
    "backend": "docs/backend.md",
    "optimize summary": "README.md",
    "ladder summary": "README.md",
    "kernel summary": "README.md",
}
"""The page of each table. Summaries contain only current rows."""
States = dict[tuple[str, str, str, str], RowState]


def render_tables(folder: str = DEFAULT_FOLDER, names: Sequence[str] = tuple(PAGES)) -> dict[str, str]:
    """Render each table as Markdown.

    Raises:
        NotFoundError: there are no rows.
    """
    kinds = dict.fromkeys(name.removesuffix(SUMMARY_SUFFIX) for name in names)
    states = {one.key: one for kind in kinds for one in compute_status(folder, kind=kind).rows}
    return {name: _render_table(name, folder, states) for name in names}


def write_tables(folder: str = DEFAULT_FOLDER, names: Sequence[str] = tuple(PAGES), into: str = "") -> list[str]:
    """Write tables into their pages, between their markers, and return the pages.

    Raises:
        NotFoundError: no such page, or no such marker in it.
    """
    for name, text in render_tables(folder, names).items():
        path = Path(into or PAGES[name])
        before, _, after = _split_page(path, name)
        mark, end = table_markers(name)
        path.write_text(f"{before}{mark}\n\n{text}" + (f"\n{end}{after}" if after else ""), encoding="utf-8")
    return list(dict.fromkeys(into or PAGES[name] for name in names))


def outdated_tables(folder: str = DEFAULT_FOLDER, page: str = "README.md") -> list[str]:
    """The tables of a page that are empty or differ from the current rows."""
    names = [name for name, one in PAGES.items() if one == page]
    tables = render_tables(folder, names)
    empty = [name for name in names if tables[name].startswith("No ")]
    return [name for name in names if name in empty or _split_page(Path(page), name)[1] != tables[name].strip()]


def table_markers(name: str) -> tuple[str, str]:
    """The marker lines above and below a table; those of a summary contain its name because it shares its page."""
    prefix = f"{name} " if name.endswith(SUMMARY_SUFFIX) else ""
    return TABLE_START.replace("<!-- ", f"<!-- {prefix}"), TABLE_END.replace("<!-- ", f"<!-- {prefix}")


def _split_page(path: Path, name: str) -> tuple[str, str, str]:
    """The text above a table, the table, and the text below."""
    mark, end = table_markers(name)
    if not path.exists() or mark not in (text := path.read_text(encoding="utf-8")):
        usual = f"kw evidence table --kind {name.removesuffix(SUMMARY_SUFFIX)} --into {PAGES[name]}"
        raise NotFoundError(f"no page {str(path)!r} with the line {mark}", next=usual)
    before, _, below = text.partition(mark)
    table, _, after = below.partition(end)
    return before, table.strip(), after


def _render_table(name: str, folder: str, states: States) -> str:
    kind = name.removesuffix(SUMMARY_SUFFIX)
    rows = read_rows(folder, kind)
    if name.endswith(SUMMARY_SUFFIX):
        rows = [row for row in rows if states[row.key].state == "current"]
    return _RENDERERS[name](rows, states)


def _diagnosis_tables(rows: Sequence[EvidenceRow], states: States) -> str:
    """Two Markdown tables: every example on every machine, and every applied recommendation with its prediction."""
    lines = [
        "| machine | example | regime | time | fused floor | summary | measured |",
        "|---|---|---|---|---|---|---|",
    ]
    results = [(row, row.decode_result(get_kind("diagnosis").result_type)) for row in rows]
    for row, result in results:
        diagnosis = result.diagnosis
        cells = [row.machine, row.workload, diagnosis.regime]
        cells += [time_text(diagnosis.time_us), time_text(diagnosis.floors.fused_us)]
        cells += [diagnosis.summary.partition(": ")[2], row_states.row_state_text(states[row.key])]
        lines.append(f"| {' | '.join(cells)} |")
    lines += row_states.reason_lines(_group_rows_by(rows, states, by=lambda row: row.workload))
    outcomes = [(row, outcome) for row, result in results for outcome in result.recommendation_outcomes]
    lines += [
        "",
        "| machine | example | recommendation | before | predicted | achieved | prediction error | implemented by |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row, outcome in outcomes:
        times = " | ".join(map(time_text, (outcome.before_us, outcome.predicted_us, outcome.achieved_us)))
        lines.append(
            f"| {row.machine} | {row.workload} | {outcome.kind} | {times} | "
            f"{percent_text(outcome.prediction_error)} | {outcome.implemented_by} |"
        )
    if outcomes:
        median_error = median(outcome.prediction_error for _, outcome in outcomes)
        lines += ["", f"Median error of {len(outcomes)} predictions: {percent_text(median_error)}."]
    return "\n".join(lines) + "\n"


def recorded_ladder_runs(rows: Iterable[EvidenceRow], states: States) -> list[RecordedLadderRun]:
    """Every recorded ladder on every machine, with its rungs in order."""
    found: dict[tuple[str, str], list[tuple[RungResult, RowState]]] = {}
    for row in rows:
        found.setdefault((row.machine, row.workload), []).append((row.decode_result(RungResult), states[row.key]))
    return [_join_rungs(sorted(parts, key=lambda part: part[0].run.rungs[0].number)) for parts in found.values()]


def _join_rungs(parts: Sequence[tuple[RungResult, RowState]]) -> RecordedLadderRun:
    rungs = tuple(rung for result, _ in parts for rung in result.run.rungs)
    return RecordedLadderRun(
        run=msgspec.structs.replace(parts[0][0].run, rungs=rungs),
        counts=tuple(count for result, _ in parts for count in result.counts),
        states=tuple(state for _, state in parts),
    )


def group_rows(rows: Iterable[EvidenceRow], states: States) -> list[RowGroup]:
    """Group rows into sections of a table: one kernel, suite or corpus on one machine."""
    return _group_rows_by(
        rows, states, by=lambda row: row.workload.partition("/")[0] if "/" in row.workload else row.kind
    )


def _group_rows_by(rows: Iterable[EvidenceRow], states: States, by: Callable[[EvidenceRow], str]) -> list[RowGroup]:
    found: dict[tuple[str, str, str], list[EvidenceRow]] = {}
    for row in rows:
        found.setdefault((row.machine, row.device, by(row)), []).append(row)
    return [
        RowGroup(
            name=name,
            machine=machine,
            device=ones[0].device,
            environment=ones[-1].environment,
            results=tuple(_decode_result(row) for row in ones),
            states=tuple(states[row.key] for row in ones),
        )
        for (machine, _, name), ones in found.items()
    ]


def _decode_result(row: EvidenceRow) -> object:
    found = row.decode_result(get_kind(row.kind).result_type)
    counts = getattr(found, "counts", None)
    return counts if isinstance(counts, SampleCounts) else found


def _ladder_summary(rows: Sequence[EvidenceRow], states: States) -> str:
    """The newest run of every ladder on a GPU; rows of ladders that were renamed or removed are skipped."""
    on_gpu = {name for name in ladder_names() if ladder_device(name) == "cuda"}
    newest: dict[str, RecordedLadderRun] = {}
    for one in sorted(recorded_ladder_runs(rows, states), key=lambda one: one.date):
        if one.run.ladder in on_gpu:
            newest[one.run.ladder] = one
    texts = [ladders.summary_text(newest[name]) for name in sorted(newest)]
    return "".join(texts) if texts else ladders.markdown([])


_RENDERERS: dict[str, Callable[[Sequence[EvidenceRow], States], str]] = {
    "diagnosis": _diagnosis_tables,
    "optimize": lambda rows, states: suite.markdown(group_rows(rows, states)),
    "layout": lambda rows, states: fragments.markdown(group_rows(rows, states)),
    "ladder": lambda rows, states: ladders.markdown(recorded_ladder_runs(rows, states)),
    "kernel": lambda rows, states: kernels.markdown(group_rows(rows, states)),
    "redteam": lambda rows, states: corpus.markdown(group_rows(rows, states)),
    "kernelbench": lambda rows, states: kernelbench.markdown(_group_rows_by(rows, states, by=lambda row: row.kind)),
    "backend": lambda rows, states: backend.markdown(_group_rows_by(rows, states, by=lambda row: row.kind)),
    "optimize summary": lambda rows, states: suite.summary_table(group_rows(rows, states)),
    "ladder summary": _ladder_summary,
    "kernel summary": lambda rows, states: kernels.summary_text(group_rows(rows, states)),
}
assert set(KIND_MODULES) <= set(_RENDERERS)
