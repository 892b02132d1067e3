"""Whose figures wait to be measured again, and why."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Protocol


class Waiting(Protocol):
    """Any kind of evidence."""

    @property
    def state(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def machine(self) -> str: ...
    @property
    def notes(self) -> tuple[str, ...]: ...


def reason(record: Waiting) -> str:
    return f"pending: {'; '.join(record.notes)}"


def paragraphs(records: Iterable[Waiting]) -> list[str]:
    """Lines of Markdown, each paragraph behind an empty one: for each machine and reason the records that wait."""
    waiting = sorted((one.machine, reason(one), one.name) for one in records if one.state == "pending")
    lines = []
    for (machine, why), ones in groupby(waiting, lambda one: one[:2]):
        lines += ["", f"{machine}, {', '.join(name for *_, name in ones)}: {why}."]
    return lines
