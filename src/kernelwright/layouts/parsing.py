"""Parser of layout expressions, such as composition((6,2):(8,2), (4,3):(3,1)).

expression  part { "o" part }                      A o B is composition(A, B)
part        value { "(" coordinate ")" }           an offset; a slice if a coordinate is _
value       int | (value, ...) | shape:stride | <tiler, ...> | Sw<b,m,s> | name | name(expression, ...)
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kernelwright.layouts.errors import LayoutError

_TOKEN = re.compile(r"\s*(?:([0-9]+)|([A-Za-z_][\w.]*)|([():,<>-])|(\S))", re.ASCII)
MAX_DIGITS = 19
"""Number of digits of 2^63."""
OPEN_MODE = "_"
MAX_DEPTH = 50


@dataclass(frozen=True)
class Node:
    """A node of the syntax tree: its kind, its span in the text, and its parts.

    Kinds: number, open, tuple, layout (shape, stride), tiler, swizzle, name, call, chain, and at (target, coordinates).
    """

    kind: str
    begin: int
    end: int
    value: Any = None
    parts: tuple[Node, ...] = ()


def parse_parts(source: str) -> tuple[Any, Any]:
    """Parse a layout such as (4,(2,2)):(2,(1,8)) into shape and stride; the stride is None for a shape alone.

    Raises:
        LayoutError: not a layout; the offending part is between >> and <<.
    """
    node = parse(source)
    if node.kind in ("number", "tuple"):
        return as_int_tuple(node, source), None
    if node.kind != "layout":
        raise LayoutError(f"a {node.kind} is not a layout", where=mark_span(source, node.begin, node.end))
    shape, stride = (as_int_tuple(part, source) for part in node.parts)
    return shape, stride


def parse(source: str) -> Node:
    """Parse an expression into its syntax tree.

    Raises:
        LayoutError: a syntax error; the offending part is between >> and <<.
    """
    parser = _Parser(source)
    node = parser.parse_expression()
    if parser.kind != "end":
        raise parser.error("the end")
    return node


def as_int_tuple(node: Node, source: str) -> Any:
    """The integer tuple of a node.

    Raises:
        LayoutError: a part is not an integer; `where` marks it.
    """
    if node.kind == "number":
        return node.value
    if node.kind == "tuple":
        return tuple(as_int_tuple(part, source) for part in node.parts)
    message = f"expected an integer or a tuple of integers, found a {node.kind}"
    raise LayoutError(message, where=mark_span(source, node.begin, node.end))


def mark_span(source: str, begin: int, end: int) -> str:
    """The text with the span marked by >> and <<."""
    return f"{source[:begin]}>>{source[begin:end]}<<{source[end:]}"


def with_location(error: LayoutError, source: str, node: Node) -> LayoutError:
    """The error with its location in the text marked, unless it has one already."""
    where = error.where or mark_span(source, node.begin, node.end)
    return LayoutError(error.message, next=error.next, where=where)


class _Parser:
    """Recursive-descent parser with one token of lookahead."""

    def __init__(self, source: str) -> None:
        self.source, self.depth, self.last_end = source, 0, 0
        self.advance(0)

    def advance(self, position: int) -> None:
        """Read the token that starts at `position`."""
        self.last_end = position
        match = _TOKEN.match(self.source, position)
        if match is None:
            self.kind, self.text, self.begin, self.end = "end", "", len(self.source), len(self.source)
            return
        number, name, sign, other = match.groups()
        self.kind = "number" if number else "name" if name else "sign" if sign else "other"
        self.text = number or name or sign or other
        self.begin, self.end = match.start(match.lastindex or 0), match.end()

    def error(self, expected: str) -> LayoutError:
        found = repr(self.text) if self.text else "the end"
        return LayoutError(f"expected {expected}, found {found}", where=mark_span(self.source, self.begin, self.end))

    def accept(self, text: str) -> bool:
        """Consume the current token if it is `text`."""
        if self.kind not in ("sign", "name") or self.text != text:
            return False
        self.advance(self.end)
        return True

    def parse_expression(self) -> Node:
        parts = [self.parse_part()]
        while self.accept("o"):
            parts.append(self.parse_part())
        return parts[0] if len(parts) == 1 else Node("chain", parts[0].begin, parts[-1].end, parts=tuple(parts))

    def parse_part(self) -> Node:
        node = self.parse_value()
        while self.text == "(" and self.begin == node.end and node.kind != "number":
            coordinates = self.parse_list("(", ")", self.parse_value)
            node = Node("at", node.begin, self.last_end, parts=(node, *coordinates))
        return node

    def parse_value(self) -> Node:
        """Parse a value, or a layout if a stride follows."""
        node = self.parse_simple()
        if self.kind == "sign" and self.text == ":":
            self.advance(self.end)
            stride = self.parse_simple()
            for part in (node, stride):
                as_int_tuple(part, self.source)
            node = Node("layout", node.begin, stride.end, parts=(node, stride))
        return node

    def parse_simple(self) -> Node:
        begin, end = self.begin, self.end
        if self.kind == "number":
            return self.parse_number()
        if self.kind == "name":
            return self.parse_name(begin, end)
        if self.kind == "sign" and self.text == "(":
            parts = self.parse_list("(", ")", self.parse_expression)
            if len(parts) == 1 and parts[0].kind not in ("number", "tuple", "open"):
                return parts[0]
            return Node("tuple", begin, self.last_end, parts=parts)
        if self.kind == "sign" and self.text == "<":
            parts = self.parse_list("<", ">", self.parse_expression)
            return Node("tiler", begin, self.last_end, parts=parts)
        if self.text == "-":  # the pattern below always matches, possibly the empty string
            self.end = self.end + len(re.match(r"\s*\d*", self.source[self.end :]).group())  # type: ignore[union-attr]
            raise self.error("a non-negative integer")
        raise self.error("an integer, a tuple, a layout or a name")

    def parse_name(self, begin: int, end: int) -> Node:
        name = self.text
        self.advance(end)
        if name == OPEN_MODE:
            return Node("open", begin, end)
        if name in ("Sw", "Swizzle") and self.text in ("<", "("):
            parts = self.parse_list(self.text, ">" if self.text == "<" else ")", self.parse_signed)
            return Node("swizzle", begin, self.last_end, parts=parts)
        if self.kind == "sign" and self.text == "(":
            parts = self.parse_list("(", ")", self.parse_expression)
            return Node("call", begin, self.last_end, name, parts)
        return Node("name", begin, end, name)

    def parse_signed(self) -> Node:
        begin, negative = self.begin, self.accept("-")
        if self.kind != "number":
            raise self.error("an integer")
        node = self.parse_number()
        return Node("number", begin, node.end, -node.value if negative else node.value)

    def parse_number(self) -> Node:
        begin, end, text = self.begin, self.end, self.text
        if len(text) > MAX_DIGITS:
            raise LayoutError(f"{len(text)} digits: 2^63 or more", where=mark_span(self.source, begin, end))
        self.advance(end)
        return Node("number", begin, end, int(text))

    def parse_list(self, opening: str, closing: str, read: Callable[[], Node]) -> tuple[Node, ...]:
        """Parse comma-separated parts between two brackets."""
        if not self.accept(opening):
            raise self.error(f'"{opening}"')
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise LayoutError(f"nested deeper than {MAX_DEPTH}")
        parts = [read()]
        while self.accept(","):
            parts.append(read())
        if not self.accept(closing):
            raise self.error(f'"," or "{closing}"')
        self.depth -= 1
        return tuple(parts)
