"""Lines of generated source: the definitions that they use, dead lines, and line wrapping."""

from __future__ import annotations

import re
from collections.abc import Sequence

WIDTH = 100
"""Columns of generated source."""
_ASSIGNMENT = re.compile(r"\s*(\w+) = ")
Definition = tuple[str, str]
"""A name and the line that defines it."""


def select_definitions(definitions: Sequence[Definition], body: Sequence[str]) -> list[str]:
    """The definitions that a body uses, directly or through each other, in their order."""
    words = set(re.findall(r"\w+", "\n".join(body)))
    selected: list[str] = []
    for name, line in reversed(definitions):
        if name in words:
            selected.append(line)
            words |= set(re.findall(r"\w+", line.split("=", 1)[1]))
    return selected[::-1]


def remove_dead_lines(lines: Sequence[str]) -> list[str]:
    """Remove assignments to names that no line reads."""
    remaining = list(lines)
    while True:
        targets = [match[1] if (match := _ASSIGNMENT.match(line)) else "" for line in remaining]
        read = {word for line in remaining for word in re.findall(r"\w+", _ASSIGNMENT.sub("", line))}
        live = [line for line, target in zip(remaining, targets, strict=True) if not target or target in read]
        if len(live) == len(remaining):
            return live
        remaining = live


def wrap_line(line: str) -> list[str]:
    """Wrap a line of code at `WIDTH` columns, inside its last brackets."""
    if len(line) <= WIDTH:
        return [line]
    indent = line[: len(line) - len(line.lstrip())]
    if split := _split_last_brackets(line):
        head, inside, tail = split
        if len(indent) + 4 + len(inside) <= WIDTH:
            return [f"{head}(", f"{indent}    {inside}", indent + tail]
        return [f"{head}(", *(f"{indent}    {arg}," for arg in _split_arguments(inside)), indent + tail]
    name, equals, value = line.partition(" = ")
    return [f"{name} = (", f"{indent}    {value}", f"{indent})"] if equals else [line]


def _split_last_brackets(line: str) -> tuple[str, str, str] | None:
    """The text before, inside and after the brackets that close at the end of a line."""
    for tail in (").to(tl.float32)", "):", ")"):
        for at, char in enumerate(line):
            inside = line[at + 1 : -len(tail)]
            if char == "(" and line.endswith(tail) and _is_balanced(inside) and _is_balanced(line[:at]):
                return line[:at], inside, tail
    return None


def _is_balanced(text: str) -> bool:
    """Whether all brackets in a text are opened before they are closed, and closed."""
    depth = 0
    for char in text:
        depth += (char in "([") - (char in ")]")
        if depth < 0:
            return False
    return depth == 0


def _split_arguments(inside: str) -> list[str]:
    """Split at the commas outside of nested brackets; a trailing comma is allowed."""
    args, depth, start = [], 0, 0
    for at, char in enumerate(inside):
        depth += (char in "([") - (char in ")]")
        if char == "," and depth == 0:
            args.append(inside[start:at].strip())
            start = at + 1
    last = inside[start:].strip()
    return [*args, last] if last else args
