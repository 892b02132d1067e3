"""Layouts and expressions of them as people write them: composition((6,2):(8,2), (4,3):(3,1)).

expression  part { "o" part }                      A o B is composition(A, B)
part        value { "(" coordinate ")" }           an offset, or a slice where a coordinate is _
value       int | (value, ...) | shape:stride | <tiler, ...> | Sw<b,m,s> | name | name(expression, ...)
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kernelwright.layouts.errors import LayoutError

_TOKEN = re.compile(r"\s*(?:([0-9]+)|([A-Za-z_][\w.]*)|([():,<>-])|(\S))", re.ASCII)
MOST_DIGITS = 19
"""Of 2^63."""
OPEN = "_"
MOST_DEPTH = 50


@dataclass(frozen=True)
class Node:
    """A piece of an expression: what it is, where it stands in the text, and its parts.

    Kinds: number, open, tuple, layout (shape, stride), tiler, swizzle, name, call, chain, and at (target, coordinates).
    """

    kind: str
    begin: int
    end: int
    value: Any = None
    parts: tuple[Node, ...] = ()


def parse_parts(source: str) -> tuple[Any, Any]:
    """The shape and the stride of a layout from its text, such as (4,(2,2)):(2,(1,8)); no stride for a shape alone.

    Raises:
        LayoutError: anything else, with the offending part between >> and <<.
    """
    node = parse(source)
    if node.kind in ("number", "tuple"):
        return integers(node, source), None
    if node.kind != "layout":
        raise LayoutError(f"a {node.kind} is no layout", where=marked(source, node.begin, node.end))
    shape, stride = (integers(part, source) for part in node.parts)
    return shape, stride


def parse(source: str) -> Node:
    """The tree of an expression.

    Raises:
        LayoutError: what cannot be read, with the offending part between >> and <<.
    """
    reader = _Reader(source)
    node = reader.expression()
    if reader.kind != "end":
        raise reader.fault("the end")
    return node


def integers(node: Node, source: str) -> Any:
    """The integer tuple that a node stands for.

    Raises:
        LayoutError: something in it is no integer; `where` marks it.
    """
    if node.kind == "number":
        return node.value
    if node.kind == "tuple":
        return tuple(integers(part, source) for part in node.parts)
    fault = f"a {node.kind} where an integer or a tuple of them must stand"
    raise LayoutError(fault, where=marked(source, node.begin, node.end))


def marked(source: str, begin: int, end: int) -> str:
    """The text with a part between >> and <<."""
    return f"{source[:begin]}>>{source[begin:end]}<<{source[end:]}"


def located(fault: LayoutError, source: str, node: Node) -> LayoutError:
    """The error with the part of the text that it is about, unless it has one already."""
    where = fault.where or marked(source, node.begin, node.end)
    return LayoutError(fault.message, next=fault.next, where=where)


class _Reader:
    """Reads tokens one after the other."""

    def __init__(self, source: str) -> None:
        self.source, self.depth, self.last = source, 0, 0
        self.advance(0)

    def advance(self, at: int) -> None:
        """Takes the token from `at` on."""
        self.last = at
        found = _TOKEN.match(self.source, at)
        if found is None:
            self.kind, self.text, self.begin, self.end = "end", "", len(self.source), len(self.source)
            return
        number, name, sign, other = found.groups()
        self.kind = "number" if number else "name" if name else "sign" if sign else "other"
        self.text = number or name or sign or other
        self.begin, self.end = found.start(found.lastindex or 0), found.end()

    def fault(self, expected: str) -> LayoutError:
        found = repr(self.text) if self.text else "the end"
        return LayoutError(f"expected {expected}, found {found}", where=marked(self.source, self.begin, self.end))

    def take(self, text: str) -> bool:
        """Goes past a sign or a word when it stands here."""
        if self.kind not in ("sign", "name") or self.text != text:
            return False
        self.advance(self.end)
        return True

    def expression(self) -> Node:
        parts = [self.part()]
        while self.take("o"):
            parts.append(self.part())
        return parts[0] if len(parts) == 1 else Node("chain", parts[0].begin, parts[-1].end, parts=tuple(parts))

    def part(self) -> Node:
        node = self.value()
        while self.text == "(" and self.begin == node.end and node.kind != "number":
            coordinates = self.several("(", ")", self.value)
            node = Node("at", node.begin, self.last, parts=(node, *coordinates))
        return node

    def value(self) -> Node:
        """A value, with the stride behind it where it is a layout."""
        node = self.simple()
        if self.kind == "sign" and self.text == ":":
            self.advance(self.end)
            stride = self.simple()
            for part in (node, stride):
                integers(part, self.source)
            node = Node("layout", node.begin, stride.end, parts=(node, stride))
        return node

    def simple(self) -> Node:
        begin, end = self.begin, self.end
        if self.kind == "number":
            return self.number()
        if self.kind == "name":
            return self.named(begin, end)
        if self.kind == "sign" and self.text == "(":
            parts = self.several("(", ")", self.expression)
            if len(parts) == 1 and parts[0].kind not in ("number", "tuple", "open"):
                return parts[0]
            return Node("tuple", begin, self.last, parts=parts)
        if self.kind == "sign" and self.text == "<":
            parts = self.several("<", ">", self.expression)
            return Node("tiler", begin, self.last, parts=parts)
        if self.text == "-":  # the pattern below matches always, if nothing
            self.end = self.end + len(re.match(r"\s*\d*", self.source[self.end :]).group())  # type: ignore[union-attr]
            raise self.fault("an integer from 0 on")
        raise self.fault("an integer, a tuple, a layout or a name")

    def named(self, begin: int, end: int) -> Node:
        name = self.text
        self.advance(end)
        if name == OPEN:
            return Node("open", begin, end)
        if name in ("Sw", "Swizzle") and self.text in ("<", "("):
            parts = self.several(self.text, ">" if self.text == "<" else ")", self.signed)
            return Node("swizzle", begin, self.last, parts=parts)
        if self.kind == "sign" and self.text == "(":
            parts = self.several("(", ")", self.expression)
            return Node("call", begin, self.last, name, parts)
        return Node("name", begin, end, name)

    def signed(self) -> Node:
        begin, negative = self.begin, self.take("-")
        if self.kind != "number":
            raise self.fault("an integer")
        node = self.number()
        return Node("number", begin, node.end, -node.value if negative else node.value)

    def number(self) -> Node:
        begin, end, text = self.begin, self.end, self.text
        if len(text) > MOST_DIGITS:
            raise LayoutError(f"{len(text)} digits: 2^63 and more", where=marked(self.source, begin, end))
        self.advance(end)
        return Node("number", begin, end, int(text))

    def several(self, opening: str, closing: str, read: Callable[[], Node]) -> tuple[Node, ...]:
        """Parts between two signs, commas between them."""
        if not self.take(opening):
            raise self.fault(f'"{opening}"')
        self.depth += 1
        if self.depth > MOST_DEPTH:
            raise LayoutError(f"nested deeper than {MOST_DEPTH}")
        parts = [read()]
        while self.take(","):
            parts.append(read())
        if not self.take(closing):
            raise self.fault(f'"," or "{closing}"')
        self.depth -= 1
        return tuple(parts)
