"""The lines of a forward function: calls of regions, and torch's operators for what no region holds."""

from __future__ import annotations

import keyword
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import fx

from kernelwright.core.errors import ProblemError
from kernelwright.optimize.capture import Captured, Source
from kernelwright.optimize.emit import wrapped
from kernelwright.optimize.regions.region import Region

MOST_LITERAL = 64
"""A constant tensor of more elements is not written out as text."""


class Part(NamedTuple):
    """A region that runs as a kernel, with the nodes that it computes."""

    region: Region
    nodes: tuple[fx.Node, ...]


@dataclass(frozen=True, eq=False)
class Unit:
    """Nodes that one line computes: a region's, those of one call of the program, or a single one."""

    nodes: tuple[fx.Node, ...]
    needs: tuple[fx.Node, ...]
    region: Region | None = None
    call: fx.Node | None = None
    stored: tuple[fx.Node, ...] = ()

    @property
    def gives(self) -> tuple[fx.Node, ...]:
        """The nodes whose value others can have from it."""
        return self.stored if self.region else self.nodes


class Forward:
    """Python lines for one captured call; `calls` says how the kernels of some regions are called."""

    def __init__(
        self, captured: Captured, parts: Sequence[Part], calls: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        self._captured, self._parts, self._calls = captured, parts, calls
        self._names: dict[fx.Node, str] = {}
        self._value_of = values_of_calls(captured)
        self._by_name = {node.name: node for node in captured.graph.nodes}
        (output,) = (node for node in captured.graph.nodes if node.op == "output")
        self.units = _needed_in_order(self._units(), list(captured.graph.nodes), output)

    def inputs(self, owner: str) -> dict[str, fx.Node]:
        """What the program is given, as it is written: arguments by name, parameters and buffers by `owner`."""
        return {
            _source_text(node, source, owner): node
            for node, source in self._captured.sources.items()
            if source.kind != "constant" and node.users and isinstance(node.meta.get("val"), torch.Tensor)
        }

    def lines(self, owner: str) -> list[str]:
        """The body, from named argument tensors to the return; `owner` is what holds parameters (`self`)."""
        self._names = {node: _source_text(node, source, owner) for node, source in self._captured.sources.items()}
        last_use = _last_uses(self.units, self._captured.graph)
        lines: list[str] = []
        for unit in self.units:
            lines.append(wrapped(self._line(unit)))
            if dead := [self._names[n] for n in last_use.get(unit, ()) if n in self._names]:
                lines.append(f"del {', '.join(dead)}")
        return [*lines, *self._results(owner)]

    # ---- units

    def _units(self) -> list[Unit]:
        held = {node for part in self._parts for node in part.nodes}
        written = {self._by_name[name] for part in self._parts for name in part.region.writes}
        units = [
            Unit(part.nodes, self._nodes(part.region.reads), part.region, stored=self._nodes(part.region.writes))
            for part in self._parts
        ]
        by_call: dict[str, list[fx.Node]] = {}
        for node in self._captured.graph.nodes:
            if node.op == "call_function" and node.users:
                by_call.setdefault(call_name(node), []).append(node)
        originals = {node.name: node for node in self._captured.original.graph.nodes}
        for name, nodes in by_call.items():
            call = originals.get(name)
            if call is not None and len(nodes) > 1 and not held & set(nodes) and self._can_be_called(call, nodes):
                units.append(Unit(tuple(nodes), _inputs_of(nodes), call=call))
            else:
                units += [Unit((node,), _inputs_of([node])) for node in nodes if node not in written]
        return units

    def _nodes(self, names: Sequence[str]) -> tuple[fx.Node, ...]:
        return tuple(self._by_name[name] for name in names)

    def _can_be_called(self, call: fx.Node, nodes: Sequence[fx.Node]) -> bool:
        """Whether the program's own call gives just the value that others need of these nodes."""
        outside = [n for n in nodes if any(user not in nodes for user in n.users)]
        known = self._value_of.keys() | {n for n in self._captured.original.graph.nodes if n.op == "placeholder"}
        return (
            isinstance(call.target, torch._ops.OpOverload)
            and not call.target._schema.is_mutable
            and len(outside) == 1
            and self._value_of.get(call) is outside[0]
            and set(call.all_input_nodes) <= known
        )

    # ---- lines

    def _line(self, unit: Unit) -> str:
        if unit.region:
            return self._region_line(unit.region)
        node = unit.nodes[-1]
        if unit.call is not None:
            node = self._value_of[unit.call]
            text = self._call_text(unit.call)
        else:
            text = self._call_text(node)
        self._names[node] = _identifier(node.name)
        return f"{self._names[node]} = {text}"

    def _region_line(self, region: Region) -> str:
        inputs, outputs = region.reads, region.writes
        self._names |= {self._by_name[name]: _identifier(name) for name in outputs}
        given = ", ".join(self._names[self._by_name[name]] for name in inputs)
        called = self._calls.get(region.name, "{name}({given})").format(name=region.name, given=given)
        return f"{', '.join(_identifier(name) for name in outputs)} = {called}"

    def _call_text(self, node: fx.Node) -> str:
        if not isinstance(node.target, torch._ops.OpOverload):
            source, place = node.args
            return f"{self._value(source)}[{place}]"
        given = [self._value(arg) for arg in node.args]
        given += [f"{name}={self._value(value)}" for name, value in node.kwargs.items()]
        return f"torch.ops.{node.target}({', '.join(given)})"

    def _value(self, value: Any) -> str:
        match value:
            case fx.Node():
                return self._names[self._value_of.get(value, value) if value not in self._names else value]
            case list() | tuple():
                inside = ", ".join(map(self._value, value))
                return f"[{inside}]" if isinstance(value, list) else f"({inside},)"
            case float() if value != value or abs(value) == float("inf"):
                return f'float("{value}")'
            case torch.device():
                return f'torch.device("{value}")'
        return repr(value)

    def _results(self, owner: str) -> list[str]:
        (output,) = (node for node in self._captured.graph.nodes if node.op == "output")
        lines, returned = [], []
        arguments_by_place = {source.name: node for node, source in self._captured.sources.items()
                              if source.kind == "argument"}  # fmt: skip
        for value, (kind, name) in zip(output.args[0], self._captured.results, strict=True):  # type: ignore[arg-type]
            text = self._value(value)
            if kind == "output":
                returned.append(text)
                continue
            target = attribute(owner, name) if kind == "buffer" else self._names[arguments_by_place[name]]
            lines.append(f"{target}.copy_({text}{'.detach()' * (kind == 'buffer')})")
        return [*lines, f"return {_tree_text(self._captured.tree, iter(returned))}"]


def call_name(node: fx.Node) -> str:
    """The call of the program that a node comes from; a name of its own where that is not known."""
    sources = node.meta.get("from_node")
    return sources[-1].name if sources else f"only {node.name}"


def values_of_calls(captured: Captured) -> dict[fx.Node, fx.Node]:
    """For each call of the program the node that has its value: the last one that came from it."""
    last = {call_name(node): node for node in captured.graph.nodes if node.op == "call_function"}
    placeholders = {node.name: node for node in captured.graph.nodes if node.op == "placeholder"}
    found = {}
    for node in captured.original.graph.nodes:
        if node.op == "placeholder" and node.name in placeholders:
            found[node] = placeholders[node.name]
        elif node.name in last and _alike(node, last[node.name]):
            found[node] = last[node.name]
    return found


def _alike(one: fx.Node, other: fx.Node) -> bool:
    value, same = one.meta.get("val"), other.meta.get("val")
    return isinstance(value, torch.Tensor) and isinstance(same, torch.Tensor) and value.shape == same.shape


def _inputs_of(nodes: Sequence[fx.Node]) -> tuple[fx.Node, ...]:
    return tuple(dict.fromkeys(n for node in nodes for n in node.all_input_nodes if n not in nodes))


def _needed_in_order(units: list[Unit], nodes: list[fx.Node], output: fx.Node) -> list[Unit]:
    """What the output needs, each after what it needs itself, otherwise as in the program."""
    of = {node: unit for unit in units for node in unit.gives}
    place = {node: at for at, node in enumerate(nodes)}
    done: dict[Unit, None] = {}

    def visit(unit: Unit, into: dict[Unit, None]) -> None:
        if unit not in into:
            for needed in sorted((n for n in unit.needs if n in of), key=place.__getitem__):
                visit(of[needed], into)
            into[unit] = None

    needed: dict[Unit, None] = {}
    for node in output.all_input_nodes:
        if node in of:
            visit(of[node], needed)
    for unit in sorted(needed, key=lambda unit: place[unit.nodes[-1]]):  # random numbers stay in their order
        visit(unit, done)
    return list(done)


def _last_uses(units: Sequence[Unit], graph: fx.Graph) -> dict[Unit, list[fx.Node]]:
    """For each unit the values that nothing after it needs, in order; what the program returns is needed to the end."""
    last: dict[fx.Node, Unit] = {}
    kept = {n for node in graph.nodes if node.op in ("output", "placeholder") for n in (node, *node.all_input_nodes)}
    for unit in units:
        last |= {needed: unit for needed in unit.needs if needed not in kept}
    found: dict[Unit, list[fx.Node]] = {}
    for node, unit in last.items():
        found.setdefault(unit, []).append(node)
    return found


def attribute(owner: str, path: str) -> str:
    """`self.norm.weight`; numbered modules by getattr."""
    text = owner
    for name in path.split("."):
        text = f"{text}.{name}" if name.isidentifier() else f'getattr({text}, "{name}")'
    return text


def _source_text(node: fx.Node, source: Source, owner: str) -> str:
    match source.kind:
        case "parameter" | "buffer":
            return attribute(owner, source.name)
        case "argument":
            return _identifier(node.name)
    value = source.value
    if not isinstance(value, torch.Tensor):
        raise ProblemError(f"{node.name} is no tensor")
    if value.numel() > MOST_LITERAL and node.users:
        raise ProblemError(f"it uses a tensor of {value.numel():,} elements that was made outside of it")
    return f"torch.tensor({value.tolist()}, dtype={value.dtype}, device={str(value.device)!r})"


def _identifier(name: str) -> str:
    return f"{name}_" if keyword.iskeyword(name) or name in ("torch", "self") else name


def _tree_text(spec: Any, leaves: Iterator[str]) -> str:
    """The result as it is written: tuples, lists and dicts around values."""
    if spec.is_leaf():
        return next(leaves)
    children = [_tree_text(child, leaves) for child in spec.children()]
    if spec.type is tuple:
        return f"({', '.join(children)}{',' * (len(children) == 1)})"
    if spec.type is list:
        return f"[{', '.join(children)}]"
    if spec.type is not None and spec.type.__module__ == "torch.return_types":
        return f"torch.return_types.{spec.type.__name__}(({', '.join(children)}))"
    if spec.type is dict:
        return "{" + ", ".join(f"{key!r}: {child}" for key, child in zip(spec.context, children, strict=True)) + "}"
    raise ProblemError(f"it returns a {getattr(spec.type, '__name__', spec.type)}")
