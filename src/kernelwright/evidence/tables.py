"""The tables that rows of evidence give, in the pages that show them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import median

import msgspec

from kernelwright.core.corpus import SampleCounts
from kernelwright.core.errors import NotFoundError
from kernelwright.core.evidence import EvidenceRow, Measured, RowState
from kernelwright.core.ladder import LadderClimb, RungResult
from kernelwright.core.units import percent_text, time_text
from kernelwright.evidence.kinds import MODULES, kind_of
from kernelwright.evidence.rows import FOLDER, read_rows
from kernelwright.evidence.status import status
from kernelwright.report import corpora, fragments, kernels, ladders, row_states, suite

MARK = "<!-- below: written by kw evidence table -->"
END = "<!-- above: written by kw evidence table -->"
SUMMARY = " summary"
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


def tables(folder: str = FOLDER, wanted: Sequence[str] = tuple(PAGES)) -> dict[str, str]:
    """The text of each table.

    Raises:
        NotFoundError: there are no rows.
    """
    states = {one.key: one for one in status(folder).rows}
    return {name: _table(name, folder, states) for name in wanted}


def write_tables(folder: str = FOLDER, wanted: Sequence[str] = tuple(PAGES), into: str = "") -> list[str]:
    """Writes tables into their pages, between their marks; gives the pages.

    Raises:
        NotFoundError: no such page, or no such mark in it.
    """
    for name, text in tables(folder, wanted).items():
        path = Path(into or PAGES[name])
        before, _, after = _divided(path, name)
        mark, end = marks_of(name)
        path.write_text(f"{before}{mark}\n\n{text}" + (f"\n{end}{after}" if after else ""), encoding="utf-8")
    return list(dict.fromkeys(into or PAGES[name] for name in wanted))


def outdated_tables(folder: str = FOLDER, page: str = "README.md") -> list[str]:
    """The tables of a page that are not what current rows give, or hold nothing."""
    named = [name for name, place in PAGES.items() if place == page]
    found = tables(folder, named)
    return [name for name in named if "|" not in found[name] or _divided(Path(page), name)[1] != found[name].strip()]


def marks_of(name: str) -> tuple[str, str]:
    """The lines above and below a table; a summary's name it, because it shares its page."""
    named = f"{name} " if name.endswith(SUMMARY) else ""
    return MARK.replace("<!-- ", f"<!-- {named}"), END.replace("<!-- ", f"<!-- {named}")


def _divided(path: Path, name: str) -> tuple[str, str, str]:
    """What is above a table, the table, and what is below."""
    mark, end = marks_of(name)
    if not path.exists() or mark not in (text := path.read_text(encoding="utf-8")):
        usual = f"kw evidence table --kind {name.removesuffix(SUMMARY)} --into {PAGES[name]}"
        raise NotFoundError(f"no page {str(path)!r} with the line {mark}", next=usual)
    before, _, below = text.partition(mark)
    table, _, after = below.partition(end)
    return before, table.strip(), after


def _table(name: str, folder: str, states: States) -> str:
    kind = name.removesuffix(SUMMARY)
    rows = read_rows(folder, kind)
    if name.endswith(SUMMARY):
        rows = [row for row in rows if states[row.key].state == "current"]
    return _WRITERS[name](rows, states)


def _diagnoses(rows: Sequence[EvidenceRow], states: States) -> str:
    """Every example on every machine, and every recommendation predicted and followed, as two Markdown tables."""
    lines = [
        "| machine | example | regime | time | fused floor | in words | measured |",
        "|---|---|---|---|---|---|---|",
    ]
    results = [(row, row.as_type(kind_of("diagnosis").result)) for row in rows]
    for row, result in results:
        found = result.diagnosis
        cells = [row.machine, row.workload, found.regime, time_text(found.time_us), time_text(found.floors.fused_us)]
        cells += [found.sentence.partition(": ")[2], row_states.row_text(states[row.key])]
        lines.append(f"| {' | '.join(cells)} |")
    lines += row_states.reasons(_groups(rows, states, by=lambda row: row.workload))
    outcomes = [(row, move) for row, result in results for move in result.moves]
    lines += [
        "",
        "| machine | example | move | before | predicted | achieved | off by | made by |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row, move in outcomes:
        times = " | ".join(map(time_text, (move.before_us, move.predicted_us, move.achieved_us)))
        lines.append(
            f"| {row.machine} | {row.workload} | {move.kind} | {times} | {percent_text(move.error)} | {move.made_by} |"
        )
    if outcomes:
        typical = median(move.error for _, move in outcomes)
        lines += ["", f"Median error of {len(outcomes)} predictions: {percent_text(typical)}."]
    return "\n".join(lines) + "\n"


def ladder_climbs(rows: Iterable[EvidenceRow], states: States) -> list[LadderClimb]:
    """Every ladder on every machine, its rungs in order."""
    found: dict[tuple[str, str], list[tuple[RungResult, RowState]]] = {}
    for row in rows:
        found.setdefault((row.machine, row.workload), []).append((row.as_type(RungResult), states[row.key]))
    return [_climb(sorted(parts, key=lambda part: part[0].climb.rungs[0].number)) for parts in found.values()]


def _climb(parts: Sequence[tuple[RungResult, RowState]]) -> LadderClimb:
    rungs = tuple(rung for result, _ in parts for rung in result.climb.rungs)
    return LadderClimb(
        climb=msgspec.structs.replace(parts[0][0].climb, rungs=rungs),
        counts=tuple(count for result, _ in parts for count in result.counts),
        states=tuple(state for _, state in parts),
    )


def measured(rows: Iterable[EvidenceRow], states: States) -> list[Measured]:
    """Rows as sections of a table: those of one kernel, suite or corpus on one machine."""
    return _groups(rows, states, by=lambda row: row.workload.partition("/")[0] if "/" in row.workload else row.kind)


def _groups(rows: Iterable[EvidenceRow], states: States, by: Callable[[EvidenceRow], str]) -> list[Measured]:
    found: dict[tuple[str, str, str], list[EvidenceRow]] = {}
    for row in rows:
        found.setdefault((row.machine, row.device, by(row)), []).append(row)
    return [
        Measured(
            name=name,
            machine=machine,
            device=ones[0].device,
            environment=ones[-1].environment,
            results=tuple(_result(row) for row in ones),
            states=tuple(states[row.key] for row in ones),
        )
        for (machine, _, name), ones in found.items()
    ]


def _result(row: EvidenceRow) -> object:
    found = row.as_type(kind_of(row.kind).result)
    counts = getattr(found, "counts", None)
    return counts if isinstance(counts, SampleCounts) else found


def _ladder_summary(rows: Sequence[EvidenceRow], states: States) -> str:
    found = [one for one in ladder_climbs(rows, states) if one.climb.ladder == SUMMARY_LADDER]
    newest = max(found, key=lambda one: one.date, default=None)
    return ladders.summary(newest) if newest else ladders.markdown([])


_WRITERS: dict[str, Callable[[Sequence[EvidenceRow], States], str]] = {
    "diagnosis": _diagnoses,
    "optimize": lambda rows, states: suite.markdown(measured(rows, states)),
    "layout": lambda rows, states: fragments.markdown(measured(rows, states)),
    "ladder": lambda rows, states: ladders.markdown(ladder_climbs(rows, states)),
    "kernel": lambda rows, states: kernels.markdown(measured(rows, states)),
    "redteam": lambda rows, states: corpora.markdown(measured(rows, states)),
    "optimize summary": lambda rows, states: suite.brief(measured(rows, states)),
    "ladder summary": _ladder_summary,
    "kernel summary": lambda rows, states: kernels.brief(measured(rows, states)),
}
assert set(MODULES) <= set(_WRITERS)
