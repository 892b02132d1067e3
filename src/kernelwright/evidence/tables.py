"""The tables that rows of evidence give, in the pages that show them."""

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
from kernelwright.report import corpus, fragments, kernels, ladders, row_states, suite

TABLE_START = "<!-- below: written by kw evidence table -->"
TABLE_END = "<!-- above: written by kw evidence table -->"
SUMMARY_SUFFIX = " summary"
SUMMARY_LADDER = "gemm_fp32"
PAGES = {
    "diagnosis": "docs/regimes.md",
    "optimize": "docs/optimize-suite.md",
    "layout": "docs/fragments.md",
    "ladder": "docs/ladders.md",
    "kernel": "docs/kernels.md",
    "redteam": "docs/corpus.md",
    "optimize summary": "README.md",
    "ladder summary": "README.md",
    "kernel summary": "README.md",
}
"""Every table with its page. A summary holds current rows alone."""
States = dict[tuple[str, str, str, str], RowState]


def render_tables(folder: str = DEFAULT_FOLDER, names: Sequence[str] = tuple(PAGES)) -> dict[str, str]:
    """The text of each table.

    Raises:
        NotFoundError: there are no rows.
    """
    states = {one.key: one for one in compute_status(folder).rows}
    return {name: _render_table(name, folder, states) for name in names}


def write_tables(folder: str = DEFAULT_FOLDER, names: Sequence[str] = tuple(PAGES), into: str = "") -> list[str]:
    """Writes tables into their pages, between their marks; gives the pages.

    Raises:
        NotFoundError: no such page, or no such mark in it.
    """
    for name, text in render_tables(folder, names).items():
        path = Path(into or PAGES[name])
        before, _, after = _split_page(path, name)
        mark, end = table_markers(name)
        path.write_text(f"{before}{mark}\n\n{text}" + (f"\n{end}{after}" if after else ""), encoding="utf-8")
    return list(dict.fromkeys(into or PAGES[name] for name in names))


def outdated_tables(folder: str = DEFAULT_FOLDER, page: str = "README.md") -> list[str]:
    """The tables of a page that are not what current rows give, or hold nothing."""
    named = [name for name, place in PAGES.items() if place == page]
    found = render_tables(folder, named)
    return [name for name in named if "|" not in found[name] or _split_page(Path(page), name)[1] != found[name].strip()]


def table_markers(name: str) -> tuple[str, str]:
    """The lines above and below a table; a summary's name it, because it shares its page."""
    named = f"{name} " if name.endswith(SUMMARY_SUFFIX) else ""
    return TABLE_START.replace("<!-- ", f"<!-- {named}"), TABLE_END.replace("<!-- ", f"<!-- {named}")


def _split_page(path: Path, name: str) -> tuple[str, str, str]:
    """What is above a table, the table, and what is below."""
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
    """Every example on every machine, and every recommendation predicted and followed, as two Markdown tables."""
    lines = [
        "| machine | example | regime | time | fused floor | in words | measured |",
        "|---|---|---|---|---|---|---|",
    ]
    results = [(row, row.decode_result(get_kind("diagnosis").result_type)) for row in rows]
    for row, result in results:
        found = result.diagnosis
        cells = [row.machine, row.workload, found.regime, time_text(found.time_us), time_text(found.floors.fused_us)]
        cells += [found.summary.partition(": ")[2], row_states.row_state_text(states[row.key])]
        lines.append(f"| {' | '.join(cells)} |")
    lines += row_states.reason_lines(_group_rows_by(rows, states, by=lambda row: row.workload))
    outcomes = [(row, move) for row, result in results for move in result.recommendation_outcomes]
    lines += [
        "",
        "| machine | example | move | before | predicted | achieved | off by | made by |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row, move in outcomes:
        times = " | ".join(map(time_text, (move.before_us, move.predicted_us, move.achieved_us)))
        lines.append(
            f"| {row.machine} | {row.workload} | {move.kind} | {times} | "
            f"{percent_text(move.prediction_error)} | {move.implemented_by} |"
        )
    if outcomes:
        typical = median(move.prediction_error for _, move in outcomes)
        lines += ["", f"Median error of {len(outcomes)} predictions: {percent_text(typical)}."]
    return "\n".join(lines) + "\n"


def recorded_ladder_runs(rows: Iterable[EvidenceRow], states: States) -> list[RecordedLadderRun]:
    """Every ladder on every machine, its rungs in order."""
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
    """Rows as sections of a table: those of one kernel, suite or corpus on one machine."""
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
    found = [one for one in recorded_ladder_runs(rows, states) if one.run.ladder == SUMMARY_LADDER]
    newest = max(found, key=lambda one: one.date, default=None)
    return ladders.summary_text(newest) if newest else ladders.markdown([])


_RENDERERS: dict[str, Callable[[Sequence[EvidenceRow], States], str]] = {
    "diagnosis": _diagnosis_tables,
    "optimize": lambda rows, states: suite.markdown(group_rows(rows, states)),
    "layout": lambda rows, states: fragments.markdown(group_rows(rows, states)),
    "ladder": lambda rows, states: ladders.markdown(recorded_ladder_runs(rows, states)),
    "kernel": lambda rows, states: kernels.markdown(group_rows(rows, states)),
    "redteam": lambda rows, states: corpus.markdown(group_rows(rows, states)),
    "optimize summary": lambda rows, states: suite.summary_table(group_rows(rows, states)),
    "ladder summary": _ladder_summary,
    "kernel summary": lambda rows, states: kernels.summary_text(group_rows(rows, states)),
}
assert set(KIND_MODULES) <= set(_RENDERERS)
