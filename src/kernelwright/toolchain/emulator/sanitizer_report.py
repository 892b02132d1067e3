"""Reads a sanitizer's report: what was found, in which of the user's lines, by which thread."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from kernelwright.toolchain.emulator.arguments import Argument

_HEAD = re.compile(r"(?:WARNING|ERROR): (?:Thread|Address)Sanitizer: (.*?)(?: on | \(pid=|$)", re.MULTILINE)
_ACCESS = re.compile(r"^\s*(?:Previous )?(?:atomic )?(read|write) of size (\d+) at", re.MULTILINE | re.IGNORECASE)
_THREAD = re.compile(r"Thread T\d+ 'thread (\(\d+, \d+, \d+\))'")
_FRAME = re.compile(r"^\s+#\d+ .*? (/?[^\s:()]+):(\d+)", re.MULTILINE)
_PLACE = re.compile(r"^kw-place block (\d+) (\d+) (\d+) thread (\d+) (\d+) (\d+)", re.MULTILINE)
_ARGUMENT = re.compile(r"^kw-argument (\d+) offset (-?\d+) of (\d+)", re.MULTILINE)
_DEADLOCK = re.compile(r"^kw-error (\d+) (.*)$", re.MULTILINE)
Kind = Literal["overrun", "race", "waiting", "fault"]
_OUT_OF_BOUNDS_WORDS = ("overflow", "underflow", "poison", "out-of-bounds")


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong in a launch."""

    kind: Kind
    """`overrun` of a tensor or shared memory, `race`, threads `waiting` for each other, or another `fault`."""
    message: str
    file: str
    line: int
    """Of the access that came last; 0 when unknown."""
    other_line: int = 0
    """Of the access that it races with."""
    block: tuple[int, int, int] | None = None
    thread: tuple[int, int, int] | None = None


def read_findings(report: str, path: str, bound: Sequence[Argument]) -> tuple[Finding, ...]:
    """Every finding of a report, one for each pair of lines."""
    found: dict[tuple[str, int, int], Finding] = {}
    for one in _findings(report, path, bound):
        found.setdefault((one.kind, one.line, one.other_line), one)
    return tuple(found.values())


def _findings(report: str, path: str, bound: Sequence[Argument]) -> Iterator[Finding]:
    heads = list(_HEAD.finditer(report))
    for head, following in zip(heads, [*heads[1:], None], strict=False):
        text = report[head.start() : following.start() if following else len(report)]
        # Where the thread was is printed before AddressSanitizer's report or behind it, and after ThreadSanitizer's.
        place = _PLACE.search(text) or _PLACE.search(report)
        yield (
            _race(text, path, place) if "race" in head[1] else _out_of_bounds(head[1], text, report, path, place, bound)
        )
    if waiting := _DEADLOCK.search(report):
        yield Finding("waiting", waiting[2], path, int(waiting[1]))


def _race(text: str, path: str, place: re.Match[str] | None) -> Finding:
    accesses = list(_ACCESS.finditer(text))
    ends = [*(one.start() for one in accesses[1:]), len(text)]
    lines = [_line(text[one.start() : end], path) for one, end in zip(accesses, ends, strict=True)]
    kinds = [one[1].lower() for one in accesses]
    line, other, *_ = *lines, 0, 0
    who = _THREAD.findall(text)
    what = " and ".join(f"a {kind} in line {at or '?'}" for kind, at in zip(kinds, lines, strict=True))
    by = f" by threads {' and '.join(who[:2])}" if len(who) > 1 else ""
    message = f"a race: {what}{by}, with no __syncthreads between them"
    return Finding("race", message, path, line, other, *_parse_position(place))


def _out_of_bounds(
    head: str, text: str, report: str, path: str, place: re.Match[str] | None, bound: Sequence[Argument]
) -> Finding:
    kind: Kind = "overrun" if any(word in head for word in _OUT_OF_BOUNDS_WORDS) else "fault"
    access = _ACCESS.search(text)
    what = f"a {access[1].lower()} of {access[2]} bytes" if access else "an access"
    beyond = _describe_region(head, report, bound) if kind == "overrun" else head
    return Finding(kind, f"{what} {beyond}", path, _line(text, path), 0, *_parse_position(place))


def _describe_region(head: str, report: str, bound: Sequence[Argument]) -> str:
    """Which memory it left, by what AddressSanitizer calls it."""
    if head.startswith(("global", "use-after-poison")):
        return "outside of shared memory"
    if head.startswith(("stack", "dynamic-stack")):
        return "outside of a local array"
    if not (match := _ARGUMENT.search(report)):
        return head
    offset, size, name = int(match[2]), int(match[3]), bound[int(match[1])].name
    how = f"{-offset} bytes before its begin" if offset < 0 else f"{offset - size} bytes past its end"
    return f"outside of {name} ({size} bytes): {how}"


def _line(text: str, path: str) -> int:
    """The user's first line in a trace."""
    return next((int(line) for file, line in _FRAME.findall(text) if path.endswith(file) or file.endswith(path)), 0)


def _parse_position(place: re.Match[str] | None) -> tuple[tuple[int, int, int] | None, tuple[int, int, int] | None]:
    if place is None:
        return None, None
    numbers = [int(one) for one in place.groups()]
    return (numbers[0], numbers[1], numbers[2]), (numbers[3], numbers[4], numbers[5])
