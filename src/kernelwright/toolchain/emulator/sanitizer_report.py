"""Parser of sanitizer reports: kind of finding, line of the user's source, block and thread."""

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
_POSITION = re.compile(r"^kw-place block (\d+) (\d+) (\d+) thread (\d+) (\d+) (\d+)", re.MULTILINE)
_ARGUMENT = re.compile(r"^kw-argument (\d+) offset (-?\d+) of (\d+)", re.MULTILINE)
_DEADLOCK = re.compile(r"^kw-error (\d+) (.*)$", re.MULTILINE)
Kind = Literal["out-of-bounds", "race", "deadlock", "fault"]
_OUT_OF_BOUNDS_WORDS = ("overflow", "underflow", "poison", "out-of-bounds")


@dataclass(frozen=True)
class Finding:
    """One error that a sanitizer found in a launch."""

    kind: Kind
    """`out-of-bounds` access of a tensor, local array or shared memory, data `race`, `deadlock`, or another `fault`."""
    message: str
    file: str
    line: int
    """Line of the later access; 0 when unknown."""
    other_line: int = 0
    """Line of the access that it races with."""
    block: tuple[int, int, int] | None = None
    thread: tuple[int, int, int] | None = None


def read_findings(report: str, path: str, bound: Sequence[Argument]) -> tuple[Finding, ...]:
    """Parse the findings of a report, one per kind and pair of lines."""
    unique: dict[tuple[str, int, int], Finding] = {}
    for one in _findings(report, path, bound):
        unique.setdefault((one.kind, one.line, one.other_line), one)
    return tuple(unique.values())


def _findings(report: str, path: str, bound: Sequence[Argument]) -> Iterator[Finding]:
    heads = list(_HEAD.finditer(report))
    for head, following in zip(heads, [*heads[1:], None], strict=False):
        text = report[head.start() : following.start() if following else len(report)]
        # The position is printed before or after AddressSanitizer's report, and after ThreadSanitizer's.
        position = _POSITION.search(text) or _POSITION.search(report)
        if "race" in head[1]:
            yield _race(text, path, position)
        else:
            yield _out_of_bounds(head[1], text, report, path, position, bound)
    if deadlock := _DEADLOCK.search(report):
        yield Finding("deadlock", deadlock[2], path, int(deadlock[1]))


def _race(text: str, path: str, position: re.Match[str] | None) -> Finding:
    accesses = list(_ACCESS.finditer(text))
    ends = [*(one.start() for one in accesses[1:]), len(text)]
    lines = [_line(text[one.start() : end], path) for one, end in zip(accesses, ends, strict=True)]
    kinds = [one[1].lower() for one in accesses]
    line, other, *_ = *lines, 0, 0
    threads = _THREAD.findall(text)
    what = " and ".join(f"a {kind} in line {number or '?'}" for kind, number in zip(kinds, lines, strict=True))
    by = f" by threads {' and '.join(threads[:2])}" if len(threads) > 1 else ""
    message = f"data race: {what}{by}, without a __syncthreads between them"
    return Finding("race", message, path, line, other, *_parse_position(position))


def _out_of_bounds(
    head: str, text: str, report: str, path: str, position: re.Match[str] | None, bound: Sequence[Argument]
) -> Finding:
    kind: Kind = "out-of-bounds" if any(word in head for word in _OUT_OF_BOUNDS_WORDS) else "fault"
    access = _ACCESS.search(text)
    what = f"a {access[1].lower()} of {access[2]} bytes" if access else "an access"
    region = _describe_region(head, report, bound) if kind == "out-of-bounds" else head
    return Finding(kind, f"{what} {region}", path, _line(text, path), 0, *_parse_position(position))


def _describe_region(head: str, report: str, bound: Sequence[Argument]) -> str:
    """Describe the memory that was overrun, from AddressSanitizer's error type."""
    if head.startswith(("global", "use-after-poison")):
        return "outside of shared memory"
    if head.startswith(("stack", "dynamic-stack")):
        return "outside of a local array"
    if not (match := _ARGUMENT.search(report)):
        return head
    offset, size, name = int(match[2]), int(match[3]), bound[int(match[1])].name
    how = f"{-offset} bytes before its start" if offset < 0 else f"{offset - size} bytes past its end"
    return f"outside of {name} ({size} bytes): {how}"


def _line(text: str, path: str) -> int:
    """Line of the first stack frame in the user's source; 0 if there is none."""
    return next((int(line) for file, line in _FRAME.findall(text) if path.endswith(file) or file.endswith(path)), 0)


def _parse_position(position: re.Match[str] | None) -> tuple[tuple[int, int, int] | None, tuple[int, int, int] | None]:
    if position is None:
        return None, None
    numbers = [int(one) for one in position.groups()]
    return (numbers[0], numbers[1], numbers[2]), (numbers[3], numbers[4], numbers[5])
