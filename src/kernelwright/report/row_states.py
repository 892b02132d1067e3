"""Texts on the date, commit and state of evidence rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from kernelwright.core.evidence import STATES, RowGroup, RowState
from kernelwright.core.units import number_text


def dates_text(states: Sequence[RowState]) -> str:
    """`2026-11-22 to 2026-11-23, 3 of 26 rows superseded`."""
    dates = sorted({one.date for one in states})
    span = " to ".join(dict.fromkeys((dates[0], dates[-1]))) if dates else "never"
    return ", ".join(filter(None, (span, outdated_text(states))))


def outdated_text(states: Sequence[RowState]) -> str:
    """`2 of 26 rows older instrument, 3 superseded`; empty if all are current."""
    counts = Counter(one.state for one in states)
    outdated = [(counts[state], state) for state in STATES[1:] if counts[state]]
    if not outdated:
        return ""
    (count, state), *others = outdated
    first = f"{count} of {number_text(len(states), 'row')} {state}"
    return ", ".join([first, *(f"{count} {state}" for count, state in others)])


def row_state_text(state: RowState) -> str:
    """`2026-11-23, fa09184`, with the state if it is not current."""
    origin = ", ".join(filter(None, (state.date, state.commit)))
    return origin if state.state == "current" else f"{origin}: {state.state}"


def reason_lines(groups: Iterable[RowGroup]) -> list[str]:
    """Return Markdown paragraphs, each after an empty line: the rows that are not current, by reason."""
    by_reason: dict[tuple[str, str, str], list[str]] = {}
    for group in groups:
        for one in group.states:
            if one.state != "current":
                by_reason.setdefault((group.machine, one.state, one.reason), []).append(group.name)
    lines = []
    for (machine, state, reason), names in sorted(by_reason.items()):
        counts = ", ".join(f"{name} ({number_text(count, 'row')})" for name, count in Counter(names).items())
        lines += ["", f"{machine}, {state}: {counts}. {reason[:1].upper()}{reason[1:]}."]
    return lines
