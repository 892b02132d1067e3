"""The lines of a forward function: calls of regions, and torch's operators for what no region holds."""

from __future__ import annotations

import keyword
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import fx

from kernelwright.compiler.capture.calls import call_name, given_back, values_of_calls
from kernelwright.compiler.capture.capture import Captured, Source
from kernelwright.compiler.kernel_source import wrapped
from kernelwright.compiler.regions.nodes import READ_WIDE, node_at
from kernelwright.compiler.regions.region import Region
from kernelwright.core.errors import ProblemError

MOST_LITERAL = 64
"""A constant tensor of more elements is not written out as text."""


class Part(NamedTuple):
    """A region that runs as a kernel, with the nodes that it computes."""

    region: Region
    nodes: tuple[fx.Node, ...]


@dataclass(frozen=True, eq=False)
class Unit:
    """Nodes that one line computes: a region's, those of one call of the program, or a single one, which can be the
    same as another."""

    nodes: tuple[fx.Node, ...]
    needs: tuple[fx.Node, ...]
    region: Region | None = None
    call: fx.Node | None = None
    stored: tuple[fx.Node, ...] = ()
    same_as: fx.Node | None = None

    @property
    def gives(self) -> tuple[fx.Node, ...]:
        """The nodes whose value others can have from it."""
        return self.stored if self.region else self.nodes


class Forward:
    """Python lines for one captured call.

    Args:
        calls: how the kernels of some regions are called.
        may_write: the regions whose kernels can write into what they are given.

    Attributes:
        in_place: for each such region its results that are written right into the argument or buffer that takes them:
            every element is read, if at all, by whoever writes it, and by nobody else.
    """

    def __init__(
        self,
        captured: Captured,
        parts: Sequence[Part],
        calls: Mapping[str, str] = MappingProxyType({}),
        may_write: Set[str] = frozenset(),
    ) -> None:
        self._captured, self._parts, self._calls = captured, parts, calls
        self._names: dict[fx.Node, str] = {}
        self._value_of = values_of_calls(captured)
        self._by_name = {node.name: node for node in captured.graph.nodes}
        (output,) = (node for node in captured.graph.nodes if node.op == "output")
        self._given = given_back(captured)
        self.units = _needed_in_order(self._units(), list(captured.graph.nodes), output)
        self.in_place = self._in_place(may_write)

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
        return [*lines, *self._results()]

    # ---- what is written into arguments

    def _in_place(self, may_write: Set[str]) -> dict[str, dict[str, str]]:
        found: dict[str, dict[str, str]] = {}
        apart = [given.value for given in self._given if not given.returned or given.argument is None]
        for value, target, returned in self._given:
            unit = next((unit for unit in self.units if value in unit.stored), None)
            if target is None or returned or unit is None or unit.region is None or unit.region.name not in may_write:
                continue
            read_by_others = any(target in other.needs for other in self.units if other is not unit)
            if apart.count(value) == 1 and not read_by_others and _element_by_element(unit.region, value, target):
                found.setdefault(unit.region.name, {})[value.name] = target.name
        return found

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
                units += [_alone(node, written) for node in nodes if node not in written]
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
            and not any(READ_WIDE in node.meta for node in _inputs_of(nodes))  # the call itself takes another node
        )

    # ---- lines

    def _line(self, unit: Unit) -> str:
        if unit.region:
            return self._region_line(unit.region)
        node = unit.nodes[-1]
        if unit.call is not None:
            node = self._value_of[unit.call]
            text = self._call_text(unit.call)
        elif unit.same_as is not None:
            text = self._names[unit.same_as]
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

    def _results(self) -> list[str]:
        lines, returned, changed = [], [], []
        in_place = {name for names in self.in_place.values() for name in names}
        for value, argument, is_returned in self._given:
            text = self._value(value)
            if is_returned:
                returned.append(self._names[argument] if argument else text)
            elif isinstance(value, fx.Node) and value.name in in_place:
                changed.append(self._value(argument))
            elif argument:
                detached = ".detach()" * (self._captured.sources[argument].kind == "buffer")
                lines.append(f"{self._names[argument]}.copy_({text}{detached})")
        if changed:
            lines.append(wrapped(f"torch.autograd.graph.increment_version([{', '.join(changed)}])"))
        return [*lines, f"return {_tree_text(self._captured.tree, iter(returned))}"]


def _element_by_element(region: Region, value: fx.Node, target: fx.Node) -> bool:
    """Whether a region without rows reads a target only where it stores the value that the target takes."""
    stores = [store for store in region.stores if store.buffer == value.name]
    loads = [load for load in region.loads if load.buffer == target.name]
    made, there = value.meta["val"], target.meta["val"]
    alike = (made.shape, made.stride(), made.dtype) == (there.shape, there.stride(), there.dtype)
    same = all((load.strides, load.offset) == (stores[0].strides, 0) for load in loads)
    return alike and bool(loads) and same and not region.row and len(stores) == 1


def _alone(node: fx.Node, written: Set[fx.Node]) -> Unit:
    """A node by itself; what is cast back from an FP32 copy that no region wrote is what was copied."""
    if READ_WIDE not in node.meta or node.args[0] in written:
        return Unit((node,), _inputs_of([node]))
    source = node_at(node_at(node, 0), 0)
    return Unit((node,), (source,), same_as=source)


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
