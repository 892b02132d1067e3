"""Lines of a kernel as text: the definitions that they need, those that nothing reads, and how wide they are."""

from __future__ import annotations

import re
from collections.abc import Sequence

WIDTH = 100
"""Columns of generated text."""
_ASSIGNED = re.compile(r"\s*(\w+) = ")
Definition = tuple[str, str]
"""A name, and the line that gives it its value."""


def select_definitions(definitions: Sequence[Definition], body: Sequence[str]) -> list[str]:
    """The definitions that a text needs, directly or through each other, in their order."""
    words = set(re.findall(r"\w+", "\n".join(body)))
    kept: list[str] = []
    for name, line in reversed(definitions):
        if name in words:
            kept.append(line)
            words |= set(re.findall(r"\w+", line.split("=", 1)[1]))
    return kept[::-1]


def remove_dead_lines(lines: Sequence[str]) -> list[str]:
    """Lines without those that give a name a value which nothing reads."""
    left = list(lines)
    while True:
        targets = [given[1] if (given := _ASSIGNED.match(line)) else "" for line in left]
        read = {word for line in left for word in re.findall(r"\w+", _ASSIGNED.sub("", line))}
        kept = [line for line, target in zip(left, targets, strict=True) if not target or target in read]
        if len(kept) == len(left):
            return kept
        left = kept


def wrap_line(line: str) -> list[str]:
    """A line of code within `WIDTH` columns, broken inside its last brackets."""
    if len(line) <= WIDTH:
        return [line]
    indent = line[: len(line) - len(line.lstrip())]
    if cut := _last_brackets(line):
        head, inside, tail = cut
        if len(indent) + 4 + len(inside) <= WIDTH:
            return [f"{head}(", f"{indent}    {inside}", indent + tail]
        return [f"{head}(", *(f"{indent}    {part}," for part in _arguments(inside)), indent + tail]
    name, equals, value = line.partition(" = ")
    return [f"{name} = (", f"{indent}    {value}", f"{indent})"] if equals else [line]


def _last_brackets(line: str) -> tuple[str, str, str] | None:
    """What is before, in and behind the brackets that are closed only at the end of a line."""
    for tail in (").to(tl.float32)", "):", ")"):
        for at, letter in enumerate(line):
            inside = line[at + 1 : -len(tail)]
            if letter == "(" and line.endswith(tail) and _is_balanced(inside) and _is_balanced(line[:at]):
                return line[:at], inside, tail
    return None


def _is_balanced(text: str) -> bool:
    """Whether no bracket in a text is closed before it is opened or left open."""
    depth = 0
    for letter in text:
        depth += (letter in "([") - (letter in ")]")
        if depth < 0:
            return False
    return depth == 0


def _arguments(inside: str) -> list[str]:
    """Split at the commas that are in no further bracket, of which the last may be behind all."""
    parts, depth, start = [], 0, 0
    for at, letter in enumerate(inside):
        depth += (letter in "([") - (letter in ")]")
        if letter == "," and depth == 0:
            parts.append(inside[start:at].strip())
            start = at + 1
    last = inside[start:].strip()
    return [*parts, last] if last else parts
