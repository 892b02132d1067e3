"""When rows of evidence were measured, of which commit, and whether they still hold, in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from kernelwright.core.evidence import STATES, RowGroup, RowState
from kernelwright.core.units import number_text


def dates_text(states: Sequence[RowState]) -> str:
    """`2026-11-22 to 2026-11-23, 3 of 26 rows superseded`."""
    dates = sorted({one.date for one in states})
    said = " to ".join(dict.fromkeys((dates[0], dates[-1]))) if dates else "never"
    return ", ".join(filter(None, (said, outdated_text(states))))


def outdated_text(states: Sequence[RowState]) -> str:
    """`3 of 26 rows superseded, 2 by an older instrument`; nothing where all are current."""
    counts = Counter(one.state for one in states)
    wrong = [f"{counts[state]} {state}" for state in STATES[1:] if counts[state]]
    return f"of {number_text(len(states), 'row')} {', '.join(wrong)}" if wrong else ""


def row_state_text(state: RowState) -> str:
    """`2026-11-23, fa09184`, with the state where it is not current."""
    said = ", ".join(filter(None, (state.date, state.commit)))
    return said if state.state == "current" else f"{said}: {state.state}"


def reason_lines(groups: Iterable[RowGroup]) -> list[str]:
    """Lines of Markdown, each paragraph behind an empty one: the rows that are not current by reason."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for group in groups:
        for one in group.states:
            if one.state != "current":
                found.setdefault((group.machine, one.state, one.reason), []).append(group.name)
    lines = []
    for (machine, state, reason), names in sorted(found.items()):
        counts = ", ".join(f"{name} ({number_text(count, 'row')})" for name, count in Counter(names).items())
        lines += ["", f"{machine}, {state}: {counts}. {reason[:1].upper()}{reason[1:]}."]
    return lines
