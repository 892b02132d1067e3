"""Determines whether rows are still valid for the current code, without measuring."""

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

    A row is current if its sources are unchanged or build the same code (`RowKind.build`) and its instruments have no
    newer version. Otherwise it is superseded, or was measured by an older instrument; it is unverified if its code
    cannot be built on this machine.

    Args:
        update: store the digest of the current sources in rows whose code is the same, so that it is not built again.
        kind: only rows of this kind.
    Raises:
        NotFoundError: there are no rows.
    """
    root = Path(folder).resolve().parent
    rows = [row for row in require_rows(folder) if kind in ("", row.kind)]
    states, updated = {}, []
    rows.sort(key=lambda row: row.kind)
    for name in dict.fromkeys(row.kind for row in rows):
        for row, state in _row_states(get_kind(name), [row for row in rows if row.kind == name], root):
            states[row.key] = state
            updated.append(row)
    changed = [row for row, before in zip(updated, rows, strict=True) if row != before]
    if update:
        write_rows(changed, folder)
    counts = Counter(one.state for one in states.values())
    return EvidenceStatus(
        rows=tuple(states[row.key] for row in rows),
        counts={name: counts[name] for name in STATES if counts[name]},
        updated=len(changed) if update else 0,
    )


def _row_states(kind: RowKind, rows: Sequence[EvidenceRow], root: Path) -> list[tuple[EvidenceRow, RowState]]:
    """Each row, updated with the digest of its current sources, and its state."""
    current_sources = {row.key: kind.sources_digest(row, root) for row in rows}
    changed = [row for row in rows if current_sources[row.key] not in (row.sources, row.superseded_sources)]
    if changed:
        report_stage(f"building the code of {len(changed)} rows of kind {kind.name} with changed sources")
    built = dict(zip((row.key for row in changed), kind.build(changed, root), strict=True)) if changed else {}
    states = []
    for row in rows:
        code, sources = built.get(row.key), current_sources[row.key]
        known = "" if sources == row.sources else CHANGED
        difference = known if code is None else _code_difference(row, code)
        if code and not difference:
            row = msgspec.structs.replace(row, sources=sources, superseded_sources="")
        elif code and difference == CHANGED:
            row = msgspec.structs.replace(row, superseded_sources=sources)
        states.append((row, row.to_row_state(*_row_state(row, difference))))
    return states


def _code_difference(row: EvidenceRow, built: BuildResult) -> str:
    """The difference from the measured code, or why it cannot be determined; empty if the code is the same."""
    if built.failure:
        return built.failure
    if built.toolchain != row.toolchain:
        return f"its code was built by {row.toolchain}; this machine has {built.toolchain}"
    same = built.artifact and (built.problem, built.artifact) == (row.problem, row.artifact)
    return "" if same else CHANGED


def _row_state(row: EvidenceRow, difference: str) -> tuple[State, str]:
    if difference:
        return ("superseded" if difference == CHANGED else "unverified"), difference
    if older := instruments.changes_since(row.instruments):
        return "older instrument", "; ".join(older)
    return "current", ""
