"""Whether rows still say what today's code does, found out without measuring anything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec

from kernelwright.core.evidence import STATES, EvidenceRow, EvidenceStatus, RowState, State
from kernelwright.core.progress import report_stage
from kernelwright.evidence import instruments
from kernelwright.evidence.kinds import BuildResult, RowKind, get_kind
from kernelwright.evidence.rows import DEFAULT_FOLDER, require_rows, write_rows

CHANGED = "its code or its problem has changed"


def compute_status(folder: str = DEFAULT_FOLDER, *, update: bool = False, kind: str = "") -> EvidenceStatus:
    """The state of every row.

    A row is current where its sources are as they were, or make the same code (`Kind.build`), and no instrument that
    measured it is newer. Otherwise it is superseded, or was measured by an older instrument; it is unverified where its
    code cannot be built here.

    Args:
        update: write today's sources into rows whose code is the same, so that it is not built again.
        kind: only rows of this kind.
    Raises:
        NotFoundError: there are no rows.
    """
    root = Path(folder).resolve().parent
    rows = [row for row in require_rows(folder) if kind in ("", row.kind)]
    states, fresh = {}, []
    rows.sort(key=lambda row: row.kind)
    for name in dict.fromkeys(row.kind for row in rows):
        for row, state in _row_states(get_kind(name), [row for row in rows if row.kind == name], root):
            states[row.key] = state
            fresh.append(row)
    noted = [row for row, before in zip(fresh, rows, strict=True) if row != before]
    if update:
        write_rows(noted, folder)
    counts = Counter(one.state for one in states.values())
    return EvidenceStatus(
        rows=tuple(states[row.key] for row in rows),
        counts={name: counts[name] for name in STATES if counts[name]},
        updated=len(noted) if update else 0,
    )


def _row_states(kind: RowKind, rows: Sequence[EvidenceRow], root: Path) -> list[tuple[EvidenceRow, RowState]]:
    """Each row, with what was found out of today's sources noted in it, and its state."""
    now = {row.key: kind.sources_digest(row, root) for row in rows}
    changed = [row for row in rows if now[row.key] not in (row.sources, row.superseded_sources)]
    if changed:
        report_stage(f"building the code of {len(changed)} rows of {kind.name}, whose sources changed")
    built = dict(zip((row.key for row in changed), kind.build(changed, root), strict=True)) if changed else {}
    found = []
    for row in rows:
        code, sources = built.get(row.key), now[row.key]
        known = "" if sources == row.sources else CHANGED
        difference = known if code is None else _code_difference(row, code)
        if code and not difference:
            row = msgspec.structs.replace(row, sources=sources, superseded_sources="")
        elif code and difference == CHANGED:
            row = msgspec.structs.replace(row, superseded_sources=sources)
        found.append((row, row.to_row_state(*_row_state(row, difference))))
    return found


def _code_difference(row: EvidenceRow, built: BuildResult) -> str:
    """What is not as it was when the row was measured, or why nobody can say; nothing where the same code runs."""
    if built.failure:
        return built.failure
    if built.toolchain != row.toolchain:
        return f"its code was built by {row.toolchain}; here is {built.toolchain}"
    same = built.artifact and (built.problem, built.artifact) == (row.problem, row.artifact)
    return "" if same else CHANGED


def _row_state(row: EvidenceRow, difference: str) -> tuple[State, str]:
    if difference:
        return ("superseded" if difference == CHANGED else "unverified"), difference
    if older := instruments.changes_since(row.instruments):
        return "older instrument", "; ".join(older)
    return "current", ""
