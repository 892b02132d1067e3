"""The declarations of the headers in this folder that a kernel needs, directly or through each other."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

HEADERS = ("vector.h", "mathematics.h", "rounding.h", "trigonometry.h", "doubles.h", "memory.h", "reductions.h")
"""In dependency order; none includes another."""
_COMMENT = re.compile(r"//[^\n]*")
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
_DECLARATION_PATTERNS = (
    re.compile(r"^#define\s+(\w+)"),
    re.compile(r"\bDEFINE_(?:UNARY|BINARY)\((\w+)\)"),
    re.compile(r"\bstruct\s+(\w+)"),
    re.compile(r"\busing\s+(\w+)\s*="),
    re.compile(r"\bconstexpr\s+[\w:<>, ]+?\s(\w+)\s*="),
    re.compile(r"(\w+)\s*\("),
)


class _Item(NamedTuple):
    """One declaration with the comment above it."""

    text: str
    name: str | None
    identifiers: frozenset[str]


def select_prelude(code: str) -> str:
    """The declarations that `code` needs, in header order."""
    items, wanted = _parse_headers(), set(_IDENTIFIER.findall(code))
    selected = [item for item in items if item.name is None]
    while more := [item for item in items if item not in selected and item.name in wanted]:
        selected += more
        wanted |= frozenset().union(*(item.identifiers for item in more))
    return "".join(item.text for item in items if item in selected)


@cache
def _parse_headers() -> tuple[_Item, ...]:
    return tuple(map(_parse_declaration, _split_declarations(read_headers())))


@cache
def read_headers() -> str:
    """The text of all headers."""
    return "\n".join((Path(__file__).parent / header).read_text() for header in HEADERS)


def _parse_declaration(text: str) -> _Item:
    code = _COMMENT.sub("", text).strip()
    head = re.sub(r"namespace \w+ \{|template <[^>]*>( requires requires\(.*?\) \{.*?\})?", "", code).partition("{")[0]
    matches = (pattern.search(head) for pattern in _DECLARATION_PATTERNS)
    name = None if code.startswith(("#include", "#if")) else next((match[1] for match in matches if match), None)
    return _Item(text, name, frozenset(_IDENTIFIER.findall(code)))


def _split_declarations(text: str) -> Iterator[str]:
    """Split after each line outside all brackets that ends a declaration or is a preprocessor directive."""
    depth, lines = 0, []
    for line in text.splitlines(keepends=True):
        lines.append(line)
        code = _COMMENT.sub("", line).rstrip()
        depth += sum(code.count(c) for c in ("{", "(", "[", "#if")) - sum(
            code.count(c) for c in ("}", ")", "]", "#endif")
        )
        if not depth and re.search(r"[;}]$|^#.*[^\\]$", code):
            yield "".join(lines)
            lines = []
    if lines:
        yield "".join(lines)
